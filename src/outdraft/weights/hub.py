"""A model name to a directory: "zoo:<name>", a path, a snapshot in the Hugging Face cache, or a download.
A GGUF file is a whole model, and stands for itself.

`huggingface_hub` is optional and imported only when a name is not a directory.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path

from outdraft import zoo
from outdraft.core.checked import check_value
from outdraft.core.errors import ModelLoadError
from outdraft.core.paths import user_path

TOKENIZER = (
    "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json", "vocab.json",
    "merges.txt",
)  # fmt: skip
PATTERNS = ["*.json", "*.safetensors", "*.model", "*.jinja", "*.txt"]


def resolve(name: str, *, also: Sequence[str] = (), revision: str | None = None) -> Path:
    """The directory that holds this model's files, or its one GGUF file. `also`: further files to download.

    `revision`: the branch, tag or commit of a hub name; a directory has none.
    """
    name = check_value("model", name, str, error=ModelLoadError)
    if revision is not None and (name.startswith("zoo:") or user_path(name, error=ModelLoadError).exists()):
        raise ModelLoadError(
            f"revision={revision!r} chooses a version on the hub, and {name} is on this machine: leave it out"
        )
    if name.startswith("zoo:"):
        return zoo.path(name.removeprefix("zoo:"))
    path = user_path(name, error=ModelLoadError)
    if path.is_dir():
        return path
    if path.is_file() and path.suffix == ".gguf":
        return path
    if path.suffix == ".gguf" and not path.exists():
        raise ModelLoadError(f"{name} does not exist: give the path of a GGUF file, or a model directory")
    if path.exists():
        raise ModelLoadError(
            f"{name} is a file: give the directory that holds config.json and model.safetensors, or a .gguf file"
        )
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ModelLoadError(f"{name} is not a directory: give a model directory or a name like 'owner/model'")
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise ModelLoadError(
            f"'{name}' is not a directory, and huggingface_hub is not installed to look it up: "
            "give a directory, or `pip install huggingface_hub`"
        ) from error
    for offline in (True, False):
        try:
            patterns = [*PATTERNS, *also]
            return Path(
                hub.snapshot_download(name, revision=revision, allow_patterns=patterns, local_files_only=offline)
            )
        except Exception as error:  # the hub raises many kinds; each means the same to us
            reason = error
    raise ModelLoadError(
        f"'{name}' is neither a directory nor in the Hugging Face cache, and downloading failed "
        f"({type(reason).__name__}: {str(reason).splitlines()[0]}): give a directory or check the network"
    )
