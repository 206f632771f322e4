"""The models that a name opens without a download: what lies in the Hugging Face cache and in ours, and short names of
installed packages. They are listed, and removed where they are no other program's.

A snapshot is one model directory, or a model for each of its GGUF files. No file is opened.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outdraft.options.errors import ModelLoadError
from outdraft.options.near_miss import near_miss
from outdraft.weights.gguf_files import models_in, part_paths
from outdraft.weights.hub import is_hub_name
from outdraft.weights.known import KNOWN
from outdraft.weights.snapshots import choose_gguf, hub_folder, import_hub

HUB, OURS, PACKAGE, PART = "hub cache", "our cache", "package", "interrupted"
_WEIGHTS = (".safetensors", ".bin", ".pt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A model that is on this machine."""

    name: str  # what `LLM` takes
    num_bytes: int
    revision: str = ""  # the commit of a snapshot, or the package and its version
    refs: tuple[str, ...] = ()  # the branches and tags that led to it
    place: str
    path: Path


Removal = tuple[int, Callable[[], object]]  # the bytes that would be free, and the call that frees them


def list_kept() -> list[Kept]:
    """All of them, by name; where one is both installed and kept, the place that is opened first."""
    found = [one for folder in hub_folder().glob("models--*--*") for one in _in_repo(folder)]  # those of an owner
    for name, known in KNOWN.items():
        for path in known.places():
            place = OURS if path == known.kept else PACKAGE
            size = path.stat().st_size
            found.append(Kept(name=name, num_bytes=size, revision=known.package, place=place, path=path))
    return sorted(found, key=lambda one: one.name.lower())


def plan_removal(name: str) -> Removal:
    """What `outdraft rm` does for a name. Raises `ModelLoadError` for what is not here or not ours, with the cure."""
    kept = list_kept()
    here = {one.place: one for one in kept if one.name == name}
    if OURS in here:
        return here[OURS].num_bytes, here[OURS].path.unlink
    if PACKAGE in here:
        package = here[PACKAGE].revision.partition("==")[0]
        raise ModelLoadError(
            f"{here[PACKAGE].path} belongs to an installed package: `pip uninstall {package}` removes it"
        )
    repo, _, file = name.partition(":")
    if not is_hub_name(name) or not hub_folder(repo).is_dir():
        is_other = name.startswith(("zoo:", "ollama:", "lmstudio:")) or Path(name).exists()
        why = "was not pulled" if is_other else f"is not here{near_miss(name, [one.name for one in kept])}"
        raise ModelLoadError(
            f"{name} {why}: `outdraft list` shows what outdraft removes; other files are yours to delete"
        )
    return _plan(hub_folder(repo), repo, file)


def _plan(folder: Path, repo: str, file: str) -> Removal:
    """The library deletes, since it knows which files several snapshots share."""
    cache: Any = import_hub(repo).scan_cache_dir(folder.parent)
    found = [one for one in cache.repos if one.repo_path == folder.resolve()]
    cache = replace(cache, repos=frozenset(found))  # a copy of a repository may have the same commits
    snapshots = [snapshot for one in found for snapshot in one.revisions]
    if file:
        files = [(str(one.file_path.relative_to(each.snapshot_path)), one) for each in snapshots for one in each.files]
        parts = [str(part) for part in part_paths(Path(choose_gguf(repo, [name for name, _ in files], file)))]
        if not hasattr(cache, "delete_files"):
            raise ModelLoadError(f"this huggingface_hub removes no single file: upgrade it, or `outdraft rm {repo}`")
        strategy = cache.delete_files(*(one for name, one in files if name in parts))
        return strategy.expected_freed_size, strategy.execute
    strategy = cache.delete_revisions(*(one.commit_hash for one in snapshots))

    def remove() -> None:
        strategy.execute()
        shutil.rmtree(folder, ignore_errors=True)  # what an interrupted download left

    return strategy.expected_freed_size + _size(_unlinked(folder)), remove


def _in_repo(folder: Path) -> Iterator[Kept]:
    name = folder.name.removeprefix("models--").replace("--", "/", 1)
    heads = folder / "refs"
    refs = {one.relative_to(heads).as_posix(): one.read_text() for one in heads.rglob("*") if one.is_file()}
    for snapshot in sorted(folder.glob("snapshots/*")):
        files = [one for one in snapshot.rglob("*") if one.is_file()]
        led = tuple(sorted(ref for ref, commit in refs.items() if commit == snapshot.name))
        models = {f":{one.relative_to(snapshot).as_posix()}": part_paths(one) for one in _ggufs(snapshot)}
        if any(one.suffix in _WEIGHTS for one in files):
            models[""] = [one for one in files if one.suffix != ".gguf"]
        for which, parts in models.items():
            path = parts[0] if which else snapshot
            yield Kept(
                name=name + which, num_bytes=_size(parts), revision=snapshot.name, refs=led, place=HUB, path=path
            )
    if left := _unlinked(folder):
        yield Kept(name=name, num_bytes=_size(left), place=PART, path=folder)


def _ggufs(snapshot: Path) -> list[Path]:
    return [one for folder in {file.parent for file in snapshot.rglob("*.gguf")} for one in models_in(folder)]


def _unlinked(folder: Path) -> list[Path]:
    """Files that no snapshot has: of a download that was interrupted."""
    linked = {one.resolve() for one in folder.glob("snapshots/**/*")}
    return [one for one in folder.glob("blobs/*") if one.resolve() not in linked]


def _size(files: list[Path]) -> int:
    return sum(one.stat().st_size for one in {one.resolve() for one in files} if one.is_file())
