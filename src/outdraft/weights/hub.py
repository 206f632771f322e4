"""A model name to a directory: "zoo:<name>", a path, "ollama:<name>" and "lmstudio:<name>" (`places.py`), a short name
(`known.py`), or a model of the hub (`snapshots.py`). A GGUF file is a whole model, and stands for itself.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from outdraft import zoo
from outdraft.options.checked import check_value
from outdraft.options.errors import ModelLoadError
from outdraft.options.paths import user_path

_LOCAL = ("zoo:", "ollama:", "lmstudio:")  # names of what is on this machine


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
    if is_hub_name(name) and ":" in name:
        from outdraft.weights.pull import find_file  # not before, likewise

        return find_file(name, revision)
    if is_hub_name(name):
        from outdraft.weights.snapshots import find_snapshot  # not before, likewise

        return find_snapshot(name, also=also, revision=revision)
    if path.suffix == ".gguf":
        raise ModelLoadError(f"{name} does not exist: give the path of a GGUF file, or a model directory")
    from outdraft.weights.known import find_known  # not before: few models have a short name

    return find_known(name, revision)


def is_hub_name(name: str) -> bool:
    """Whether a name that is no path has the form of one on the hub: "owner/model" or "owner/model:FILE"."""
    repo, colon, _ = name.partition(":")
    is_file = not colon and name.endswith(".gguf")
    return repo.count("/") == 1 and not (is_file or name.startswith((".", "/", "~")))
