"""`model.safetensors.index.json`: which file of a directory holds which tensor.

The index decides. A copy of a tensor in another file is not read, and a tensor that the index does not name is none.
"""

from pathlib import Path

from outdraft.options.errors import ModelLoadError
from outdraft.options.read_file import load_json
from outdraft.options.shown import shown

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_CURE = "download it again"


def read_index(directory: Path) -> dict[str, Path]:
    """Tensor -> file; empty where there is no index.

    Raises `ModelLoadError` for one that is damaged, or that names files outside the directory.
    """
    path = directory / INDEX
    if not path.exists():
        return {}
    try:
        table = load_json(path)["weight_map"]
        files = {str(name): str(file) for name, file in table.items()}
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise ModelLoadError(f"{path} is not a readable shard index ({error!r}): {_CURE}") from error
    for name, file in files.items():
        if Path(file).is_absolute() or ".." in Path(file).parts or "\0" in file:
            raise ModelLoadError(
                f"{path} places the tensor {shown(name)} in {shown(file)}, outside the directory: name a file in it"
            )
    return {name: directory / file for name, file in files.items()}


def read_used_index(directory: Path) -> dict[str, Path]:
    """The same; empty also where a single file stands beside the index, which is read in place of shards."""
    return {} if (directory / SINGLE).exists() else read_index(directory)
