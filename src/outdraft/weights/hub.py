"""A model name to a directory: "zoo:<name>", a path, "ollama:<name>" and "lmstudio:<name>" (`places.py`), a short name
(`known.py`), a snapshot in the Hugging Face cache, or a download. A GGUF file is a whole model, and stands for itself.

`huggingface_hub` is optional and imported only when a name is not a directory.
"""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path

from outdraft import zoo
from outdraft.options.checked import check_value
from outdraft.options.errors import ModelLoadError
from outdraft.options.paths import user_path
from outdraft.weights.pickled import PICKLED
from outdraft.weights.safetensors import find_missing

_LOCAL = ("zoo:", "ollama:", "lmstudio:")  # names of what is on this machine
PATTERNS = ["*.json", "*.safetensors", "*.model", "*.jinja", "*.txt"]


def resolve(name: str | Path, *, also: Sequence[str] = (), revision: str | None = None) -> Path:
    """The directory that holds this model's files, or its one GGUF file. `also`: further files to download.

    `revision`: the branch, tag or commit of a hub name; a directory has none.
    """
    if isinstance(name, Path) and os.path.isfile(name / "config.json") and revision is None:
        return name
    name = str(check_value("model", name, str | Path, error=ModelLoadError))
    if revision is not None and (name.startswith(_LOCAL) or user_path(name, error=ModelLoadError).exists()):
        raise ModelLoadError(
            f"revision={revision!r} chooses a version on the hub, and {name} is on this machine: leave it out"
        )
    if name.startswith("zoo:"):
        return zoo.path(name.removeprefix("zoo:"))
    path = user_path(name, error=ModelLoadError)
    if name.startswith(_LOCAL) or path.exists():
        from outdraft.weights.places import find_place  # not before: few models lie elsewhere

        return find_place(name, path)
    if path.suffix == ".gguf":
        raise ModelLoadError(f"{name} does not exist: give the path of a GGUF file, or a model directory")
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        from outdraft.weights.known import find_known  # not before: few models have a short name

        return find_known(name, revision)
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise ModelLoadError(
            f"'{name}' is not a directory, and huggingface_hub is not installed to look it up: "
            "give a directory, or `pip install huggingface_hub`"
        ) from error
    patterns = [*PATTERNS, *also]
    cached: Path | None = None
    lacking = None
    for offline in (True, False):
        try:
            how = {"revision": revision, "allow_patterns": patterns, "local_files_only": offline}
            found = Path(hub.snapshot_download(name, **how))
        except Exception as error:  # the hub raises many kinds; each means the same to us
            reason = error
            continue
        if not offline or not ((lacking := _find_lacking(found)) or _lacks_further(found, also)):
            return found
        cached = found
    if cached is not None and not lacking:
        return cached  # the further files may not exist: who reads them decides
    told = f"{type(reason).__name__}: {str(reason).splitlines()[0]}"
    if cached is not None:
        raise ModelLoadError(
            f"'{name}' is in the Hugging Face cache without {lacking}, and downloading the rest failed ({told}): "
            "check the network, or give a directory that holds the whole model"
        )
    raise ModelLoadError(
        f"'{name}' is neither a directory nor in the Hugging Face cache, and downloading failed "
        f"({told}): give a directory or check the network"
    )


def _find_lacking(snapshot: Path) -> str | None:
    """What a model in the cache lacks, as another program leaves it that needed only the tokenizer; None: nothing."""
    return find_missing(snapshot) if (snapshot / "config.json").is_file() else "config.json"


def _lacks_further(snapshot: Path, also: Sequence[str]) -> bool:
    """Whether files that were asked for by name are not there; a pickle only stands in for safetensors."""
    further = [pattern for pattern in also if pattern != PICKLED]
    return bool(further) and not any(any(snapshot.glob(pattern)) for pattern in further)
