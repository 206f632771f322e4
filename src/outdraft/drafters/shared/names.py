"""Where a drafter's weights are: a directory, a hub name, or "zoo:<name>" for a model that ships with outdraft.

Data in: what the user wrote; data out: a directory.
"""

from pathlib import Path

from outdraft.weights.hub import resolve
from outdraft.zoo import path as zoo_path


def model_directory(name: str) -> Path:
    """Raises `ModelLoadError` if there is nothing of that name."""
    return zoo_path(name.removeprefix("zoo:")) if name.startswith("zoo:") else resolve(name)
