"""Models where other programs put them: a name or a path to the directory or the GGUF file that is opened, and a list
of what is there. Nothing is copied, and nothing is written there.

    ollama:MODEL:TAG                            Ollama's folder (`ollama.py`)
    lmstudio:PUBLISHER/REPO[/FILE.gguf]         that path in LM Studio's folder
"""

import logging
import os
from collections.abc import Iterator
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

from outdraft.options.errors import ModelLoadError
from outdraft.options.near_miss import near_miss
from outdraft.options.paths import user_path
from outdraft.options.shown import shown
from outdraft.weights import ollama
from outdraft.weights.gguf_files import find_parts, is_gguf, listed, models_in, part_paths, projectors_beside

MOST = 1000  # models that are listed, or compared with a name that is not there
_LMSTUDIO = "lmstudio:"
_log = logging.getLogger("outdraft.notes")


def find_place(name: str, path: Path) -> Path:
    """The model of a name with a prefix, or else at `path`, where something stands.

    Raises `ModelLoadError` with the cure.
    """
    found: Path | None = path
    if name.startswith(ollama.PREFIX):
        found = ollama.find_manifest(name)
    elif name.startswith(_LMSTUDIO):
        found = _in_lmstudio(name)
    if found is None:
        near = near_miss(name, [one for one, _ in islice(_names(), MOST)])
        raise ModelLoadError(
            f"{name} is not in {listed(folders())}{near}: `outdraft info` lists what is there; download it with its "
            "own program, give the path of the file, or name Ollama's folder in OLLAMA_MODELS"
        )
    return _opened(name, found)


def list_found() -> Iterator[tuple[str, dict[str, Any]]]:
    """The models in these folders: name -> "bytes" and "path", or "error". Only manifests are opened."""
    for name, path in _names():
        try:
            model = ollama.read_manifest(path)[0] if name.startswith(ollama.PREFIX) else path
            yield name, {"bytes": sum(map(os.path.getsize, part_paths(model))), "path": str(model)}
        except (ModelLoadError, OSError) as error:
            yield name, {"error": str(error)}


def folders() -> list[Path]:
    """Where both programs keep models."""
    return [*ollama.homes(), *_homes()]


def _homes() -> list[Path]:
    return [user_path(home, error=ModelLoadError) for home in ("~/.lmstudio/models", "~/.cache/lm-studio/models")]


def _names() -> Iterator[tuple[str, Path]]:
    """Name and manifest, or name and GGUF file, of each model."""
    yield from ollama.list_manifests()
    for repo in chain(*(home.glob("*/*") for home in _homes() if os.path.isdir(home))):
        yield from ((f"{_LMSTUDIO}{'/'.join(path.parts[-3:])}", path) for path in models_in(repo))


def _in_lmstudio(name: str) -> Path | None:
    parts = name.removeprefix(_LMSTUDIO).split("/")
    if len(parts) not in (2, 3) or any(part in ("", ".", "..") or "\\" in part for part in parts):
        raise ModelLoadError(f"{shown(name)} is no name: write {_LMSTUDIO}PUBLISHER/REPO or .../REPO/FILE.gguf")
    return next((place for home in _homes() if os.path.exists(place := home.joinpath(*parts))), None)


def _opened(name: str, path: Path) -> Path:
    """What is opened of a manifest, a directory, or a file."""
    if path.is_file() and ollama.is_manifest(path) and not is_gguf(path):
        path, unread = ollama.read_manifest(manifest := path.absolute())
        if unread:
            _tell(f"{ollama.name_of(manifest)} ({manifest}): layers that are not read: {', '.join(unread)}")
    is_repo = name.startswith(_LMSTUDIO) or not os.path.isfile(path / "config.json")
    if path.is_dir() and is_repo and (files := models_in(path)):
        if len(files) > 1:
            names = listed([file.name for file in files])
            raise ModelLoadError(f"{name} has {len(files)} models ({names}): name one, as {name}/{files[0].name}")
        path = files[0]
    if path.is_dir():
        return path
    first = find_parts(path)[0]
    if not first.is_file() or not is_gguf(first):
        raise ModelLoadError(
            f"{path} is a file: give the directory that holds config.json and model.safetensors, or a .gguf file"
        )
    if beside := projectors_beside(first):
        _tell(f"{first}: {listed(beside)} beside it: projectors are not read, a prompt is text")
    return first


@cache
def _tell(line: str) -> None:
    """Once in a process: a model is found several times while it is loaded."""
    _log.info("%s", line)
