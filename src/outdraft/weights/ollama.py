"""Models in Ollama's folder, read where they lie: a name or a manifest to the GGUF file of its model.

    manifests/REGISTRY/NAMESPACE/MODEL/TAG    JSON: layers, each a media type and a digest; `manifests-v2` is newer
    blobs/sha256-HEX                          the bytes of a layer; that of type "model" is a GGUF file

The folder is OLLAMA_MODELS, else ~/.ollama/models and that of Ollama's service on Linux. Bytes are not compared with
their digest: that would read the whole file. What else a manifest has is refused or noted.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from outdraft.options.errors import ModelLoadError
from outdraft.options.paths import user_path
from outdraft.options.read_file import load_json
from outdraft.options.shown import shown
from outdraft.weights.gguf_files import listed

PREFIX = "ollama:"
_MANIFESTS = ("manifests-v2", "manifests")
_SERVICE = "/usr/share/ollama/.ollama/models"
_KIND = "application/vnd.ollama.image."
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"  # never ".."
_NAME = re.compile(rf"(?:(?:({_PART}(?::[0-9]+)?)/)?({_PART})/)?({_PART})(?::({_PART}))?")
_DEFAULTS = ("registry.ollama.ai", "library", "", "latest")
_DIGEST = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")
_LARGEST = 4 << 20  # bytes of a manifest
_UNREAD = {
    "template": "the GGUF file's own is used, if it has one",
    "params": "give settings with each request",
    "system": "give a system message with each chat",
    "messages": "give earlier messages with each chat",
    "projector": "a prompt is text",
}


def find_manifest(name: str) -> Path | None:
    """The manifest of "ollama:[[REGISTRY/]NAMESPACE/]MODEL[:TAG]"; None: it is not there.

    Raises `ModelLoadError` for what is no such name.
    """
    found = _NAME.fullmatch(name.removeprefix(PREFIX))
    if found is None:
        raise ModelLoadError(f"{shown(name)} is no name of a model of Ollama: write {PREFIX}MODEL:TAG, as it lists it")
    parts = [part or default for part, default in zip(found.groups(), _DEFAULTS, strict=True)]
    places = (home.joinpath(folder, *parts) for home in homes() for folder in _MANIFESTS)
    return next((place for place in places if os.path.isfile(place)), None)


def is_manifest(path: Path) -> bool:
    """Whether a file lies where Ollama keeps manifests."""
    return path.absolute().parts[-5:-4] in [(folder,) for folder in _MANIFESTS]


def read_manifest(path: Path) -> tuple[Path, list[str]]:
    """The GGUF file of a manifest, and its layers that are not read, with what takes their place.

    Raises `ModelLoadError` for what is no manifest, for an adapter, and for a model that is no one file or not there.
    """
    cure = f"pull it again (`ollama pull {name_of(path).removeprefix(PREFIX)}`)"
    try:
        read = load_json(path, most=_LARGEST)
        if "manifests" in read:
            raise ModelLoadError(f"{path} lists several variants, which is not read: name the blob of one, a GGUF file")
        layers = [(str(one["mediaType"]).removeprefix(_KIND), str(one["digest"])) for one in read["layers"]]
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{path} is no manifest that can be read ({error}): {cure}") from error
    except (KeyError, TypeError) as error:
        raise ModelLoadError(f"{path} has no layers with mediaType and digest, as a manifest has: {cure}") from error
    adapters, models = ([digest for kind, digest in layers if kind == asked] for asked in ("adapter", "model"))
    if adapters:
        raise ModelLoadError(
            f"{path}: the layer 'adapter' ({shown(adapters[0])}) is not applied here: merge it into its model "
            "(llama.cpp's llama-export-lora) and name the file that comes of it, or name the model alone"
        )
    if len(models) != 1:
        raise ModelLoadError(
            f"{path} has {len(models)} layers 'model' (all: {listed([kind for kind, _ in layers])}), and only a model "
            "in one GGUF file is read: name another tag of it, or take its safetensors"
        )
    if (found := _DIGEST.fullmatch(models[0])) is None:
        raise ModelLoadError(f"{path}: the digest {shown(models[0])} is no sha256:HEX, and names no blob: {cure}")
    blob = path.parents[4] / "blobs" / f"sha256-{found[1]}"
    if not os.path.isfile(blob):
        raise ModelLoadError(f"{path}: the blob of its model is not there ({blob}): {cure}")
    others = [(kind, digest) for kind, digest in layers if kind not in ("model", "license")]
    return blob, [f"{kind} ({_UNREAD.get(kind, digest)})" for kind, digest in others]


def list_manifests() -> Iterator[tuple[str, Path]]:
    """Name and manifest of each model in the folder, none of them opened."""
    for folder in (home / folder for home in homes() for folder in _MANIFESTS):
        for path in folder.glob("*/*/*/*") if os.path.isdir(folder) else ():
            if not path.name.startswith(".") and os.path.isfile(path):
                yield name_of(path), path


def homes() -> list[Path]:
    """The folders that hold manifests and blobs."""
    named = os.environ.get("OLLAMA_MODELS")
    return [user_path(one, error=ModelLoadError) for one in ([named] if named else ["~/.ollama/models", _SERVICE])]


def name_of(manifest: Path) -> str:
    """As Ollama lists it, with our prefix: "ollama:llama3.2:1b"."""
    place = "/".join(manifest.parts[-4:-1]).removeprefix(f"{_DEFAULTS[0]}/").removeprefix(f"{_DEFAULTS[1]}/")
    return f"{PREFIX}{place}:{manifest.name}"
