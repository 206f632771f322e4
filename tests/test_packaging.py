"""What a package says of itself and holds, and the ways to start it. Wheels with kernels are built by a workflow."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RELATIVE = re.compile(r"\]\((?!https?:|#)[^)]+\)")


def run(*words: str, **environment: str) -> str:
    """Standard output of a Python process in the repository."""
    told = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=told, capture_output=True, text=True, check=True
    ).stdout


def test_the_module_is_the_command():
    from outdraft import __version__

    assert run("-m", "outdraft", "--version").strip() == f"outdraft {__version__}"


def test_the_version_is_the_same_everywhere():
    from outdraft import __version__

    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert told["version"] == __version__
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_an_index_gets_absolute_links_where_an_address_is_given():
    pytest.importorskip("setuptools", minversion="77")
    shown = run("setup.py", "--quiet", "--long-description", OUTDRAFT_URL="https://example.org/a/b/")
    assert "https://example.org/a/b/blob/HEAD/docs/quickstart.md" in shown and not RELATIVE.search(shown)
    assert "](https://example.org/a/b/raw/HEAD/docs/pictures/" in shown
    assert RELATIVE.search(run("setup.py", "--quiet", "--long-description", OUTDRAFT_URL=""))


def tracked(*places: str) -> set[str]:
    """The files of the repository, relative to it."""
    told = subprocess.run(["git", "ls-files", "-z", *places], cwd=ROOT, capture_output=True, text=True, check=False)
    if told.returncode:
        pytest.skip(f"the files of a release are those of a git checkout: {told.stderr.strip() or 'there is none'}")
    return set(told.stdout.split("\0")) - {""}


def built(kind: str, source: Path, place: Path) -> Path:
    """An sdist or a wheel without kernels, made by the build backend that is installed here: nothing is downloaded."""
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(place)!r}))"
    told = {**os.environ, "OUTDRAFT_KERNELS_BUILD": "off", "OUTDRAFT_URL": ""}
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, cwd=source, env=told, capture_output=True, text=True, check=True).stdout
    return place / printed.split()[-1]


def test_nothing_that_ships_needs_the_lab():
    """What is in `src` runs without it, and no wheel finds it."""
    importing = re.compile(r"^\s*(?:from|import) lab\b", re.MULTILINE)
    assert not [path for path in (ROOT / "src").rglob("*.py") if importing.search(path.read_text())]
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]
    assert found == {"where": ["src"]} and "prune lab" in (ROOT / "MANIFEST.in").read_text()


@pytest.mark.slow
def test_a_release_holds_the_package_and_nothing_else(tmp_path: Path):
    """The sdist has no tests and is enough to build the wheel, which holds all of the package, for any Python 3."""
    pytest.importorskip("setuptools", minversion="77")
    source, files = tmp_path / "source", tracked()
    for name in files:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    with tarfile.open(built("sdist", source, tmp_path)) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
        archive.extractall(tmp_path / "unpacked", filter="data")
    package = {name for name in files if name.startswith("src/outdraft/")}
    assert package <= inside and {"setup.py", "pyproject.toml", "LICENSE", "README.md"} <= inside
    assert not [
        name for name in inside if name.split("/")[0] in ("tests", "lab", "docs", "recipes", "packages", ".github")
    ]
    (folder,) = (tmp_path / "unpacked").iterdir()
    wheel = built("wheel", folder, tmp_path)
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (told,) = (archive.read(name).decode() for name in names if name.endswith("/METADATA"))
        (commands,) = (archive.read(name).decode() for name in names if name.endswith("/entry_points.txt"))
    held = {name for name in names if ".dist-info/" not in name}
    assert held == {name.removeprefix("src/") for name in package}
    assert "outdraft = " in commands and "License-Expression: Apache-2.0" in told
    assert str(tmp_path) not in told and str(ROOT) not in told


@pytest.mark.parametrize(("age", "said"), [(60, "nothing to compile"), (-60, "compiling the kernels")])
def test_kernels_are_compiled_where_their_source_is_newer(age: int, said: str, tmp_path: Path):
    """`pip install '.[server]'` after `pip install .` compiles nothing; the compiler here refuses everything."""
    native = Path("src/outdraft/kernels/native")
    for name in ("setup.py", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / native, tmp_path / native)
    built = tmp_path / "built/outdraft/kernels/_native.so"
    built.parent.mkdir(parents=True)
    built.touch()
    newest = max(path.stat().st_mtime for path in tmp_path.rglob("*"))
    os.utime(built, (newest + age, newest + age))
    line = [sys.executable, "setup.py", "build_ext", "--build-lib", "built"]
    environment = {**os.environ, "CC": "false", "CXX": "false"}
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert said in done.stdout, done.stdout + done.stderr
