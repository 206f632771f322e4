"""The kernels on another processor: compiled for aarch64, and run there by an emulator (`arm_check.cpp`).

Debian's packages are g++-aarch64-linux-gnu and qemu-user-static, or qemu-user.
"""

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

from outdraft.kernels.library import KINDS

HOME = Path(__file__).parent
NATIVE = HOME.parents[1] / "src/outdraft/kernels/native"
COMPILER = shutil.which("aarch64-linux-gnu-g++")
EMULATOR = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
FLAGS = ("-O2", "-std=c++17", "-pthread", "-Wall", "-Wextra", "-Wno-psabi", "-Wno-ignored-attributes")
FLAGS += ("-Wno-maybe-uninitialized", "-Werror", "-ffp-contract=off", f"-I{NATIVE}")


def built_sets() -> dict[str, dict[str, list[str]]]:
    """The instruction sets that setup.py builds, with their flags, for each kind of machine."""
    tree = ast.parse((HOME.parents[1] / "setup.py").read_text())
    names = {"AVX2", "AVX512", "AMX", "X86", "ARM"}
    kept = [
        one
        for one in tree.body
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and one.targets[0].id in names
    ]
    found: dict = {}
    exec(compile(ast.Module(kept, []), "setup.py", "exec"), found)
    return {"x86": found["X86"], "arm": found["ARM"]}


def test_every_set_that_is_built_has_a_name_and_can_be_asked_for():
    sets = built_sets()
    assert set(KINDS) == {name for one in sets.values() for name in one}
    declared = (NATIVE / "dispatch.cpp").read_text()
    for name in KINDS:
        assert f"kernels_{name}," in declared or f"kernels_{name};" in declared
    for one in sets.values():  # the portable set is everywhere, and the last choice
        assert [name for name in KINDS if name in one][-1] == "portable"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver with all kernels, for aarch64."""
    home = tmp_path_factory.mktemp("arm")
    jobs = [[str(path), "-o", str(home / f"{path.stem}.o")] for path in NATIVE.glob("*.cpp") if path.stem != "isa"]
    jobs += [
        [str(NATIVE / "isa.cpp"), f"-DOD_ISA={name}", *flags, "-o", str(home / f"isa_{name}.o")]
        for name, flags in built_sets()["arm"].items()
    ]
    jobs += [[str(HOME / "arm_check.cpp"), "-o", str(home / "arm_check.o")]]
    for job in jobs:
        subprocess.run([str(COMPILER), *FLAGS, "-c", *job], check=True)
    made = home / "arm_check"
    objects = [str(path) for path in home.glob("*.o")]
    subprocess.run([str(COMPILER), "-static", "-pthread", *objects, "-o", str(made)], check=True)
    return made


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None or EMULATOR is None, reason="no compiler for aarch64, or nothing to emulate it")
@pytest.mark.parametrize(
    ("processor", "sets"), [("max", ["neon_dot", "neon", "portable"]), ("cortex-a72", ["neon", "portable"])]
)
def test_products_and_passes_under_emulation(program: Path, processor: str, sets: list[str]):
    """cortex-a72 has no dot products of bytes: the next set is chosen, and the other is never entered."""
    ran = subprocess.run(
        [str(EMULATOR), "-cpu", processor, str(program), *sets], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("products and passes checked") == len(sets)
