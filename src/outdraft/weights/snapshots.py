"""Models in the Hugging Face cache, and the download of one that is not there or lacks files.

    owner/model         the directory of a snapshot
    owner/model:FILE    one GGUF file of it, by its name or by its type alone ("Q4_K_M"); of a split one the first part

`huggingface_hub` is optional, and only a name of this form imports it.
"""

import importlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from outdraft.options.errors import ModelLoadError
from outdraft.options.near_miss import near_miss
from outdraft.weights.gguf_files import listed, part_paths
from outdraft.weights.pickled import PICKLED
from outdraft.weights.safetensors import find_missing

PATTERNS = ["*.json", "*.safetensors", "*.model", "*.jinja", "*.txt"]


def import_hub(name: str) -> Any:
    """The library. Raises `ModelLoadError` where it is not installed."""
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise ModelLoadError(
            f"'{name}' is not a directory, and huggingface_hub is not installed to look it up: "
            "give a directory, or `pip install huggingface_hub`"
        ) from error


def hub_folder(repo: str = "") -> Path:
    """The Hugging Face cache, or the folder of one model in it; it need not exist."""
    import_hub(repo or "the cache of the hub")
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE).expanduser() / (f"models--{repo.replace('/', '--')}" if repo else "")


def find_snapshot(name: str, *, also: Sequence[str] = (), revision: str | None = None) -> Path:
    """What a hub name stands for; it is downloaded unless the cache has it. `also`: further files to download.

    Raises `ModelLoadError` with the cure.
    """
    hub = import_hub(name)
    if here := find_here(name, also=also, revision=revision):
        return here
    how = {"revision": revision, "allow_patterns": [*PATTERNS, *also], "local_files_only": False}
    try:
        return Path(hub.snapshot_download(name, **how))
    except Exception as error:  # the hub raises many kinds; each means the same to us
        told, reason = f"{type(error).__name__}: {str(error).splitlines()[0]}", error
    cached = _find_cached(name, revision, PATTERNS)
    if cached and not (lacking := _find_lacking(cached)):
        return cached  # the further files may not exist: who reads them decides
    if cached:
        raise ModelLoadError(
            f"'{name}' is in the Hugging Face cache without {lacking}, and downloading the rest failed ({told}): "
            "check the network, or give a directory that holds the whole model"
        ) from reason
    raise ModelLoadError(
        f"'{name}' is neither a directory nor in the Hugging Face cache, and downloading failed "
        f"({told}): give a directory or check the network"
    ) from reason


def find_here(name: str, *, also: Sequence[str] = (), revision: str | None = None) -> Path | None:
    """What a hub name stands for in the cache; None: not all of it is there. No network is asked."""
    repo, colon, file = name.partition(":")
    cached = _find_cached(repo, revision, () if colon else PATTERNS)
    if cached is None:
        return None
    if not colon:
        return None if _find_lacking(cached) or _lacks_further(cached, also) else cached
    try:
        return cached / choose_gguf(repo, [one.relative_to(cached).as_posix() for one in cached.rglob("*.gguf")], file)
    except ModelLoadError:
        return None


def choose_gguf(repo: str, names: Iterable[str], wanted: str) -> str:
    """The GGUF file that `wanted` names in whole, or by the type at its end. Raises `ModelLoadError` with all names."""
    ggufs = [name for name in names if name.endswith(".gguf") and "mmproj" not in name.lower()]
    firsts = sorted({str(part_paths(Path(name))[0]) for name in ggufs})
    whole = str(part_paths(Path(wanted))[0])
    of_type = re.compile(rf"[-._]{re.escape(wanted)}(-00001-of-[0-9]+)?\.gguf$", re.IGNORECASE)
    named = [name for name in firsts if whole in (name, Path(name).name)]
    found = named or [name for name in firsts if of_type.search(name)]
    if len(found) == 1:
        return found[0]
    what = f"{len(found)} GGUF files fit" if found else f"there is no such GGUF file{near_miss(wanted, firsts)}"
    raise ModelLoadError(
        f"{repo}:{wanted}: {what}; the repository has {listed(found or firsts) or 'none'}: name one in whole"
    )


def _find_cached(repo: str, revision: str | None, patterns: Sequence[str]) -> Path | None:
    """The snapshot in the cache, where it has all files of these patterns as far as the library knows."""
    how = {"revision": revision, "allow_patterns": [*patterns], "local_files_only": True}
    try:
        return Path(import_hub(repo).snapshot_download(repo, **how))
    except Exception:  # the hub raises many kinds; each means that it is not there
        return None


def _find_lacking(snapshot: Path) -> str | None:
    """What a model in the cache lacks, as another program leaves it that needed only the tokenizer; None: nothing."""
    return find_missing(snapshot) if (snapshot / "config.json").is_file() else "config.json"


def _lacks_further(snapshot: Path, also: Sequence[str]) -> bool:
    """Whether files that were asked for by name are not there; a pickle only stands in for safetensors."""
    further = [pattern for pattern in also if pattern != PICKLED]
    return bool(further) and not any(any(snapshot.glob(pattern)) for pattern in further)
