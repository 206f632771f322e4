"""Builds the native kernels (src/outdraft/kernels/native) beside the package, where there is a C++17 compiler.

The same source is compiled once for each instruction set; which one runs is decided when it is loaded. The kernels are
optional: without a compiler the installation goes on, with a warning, and everything runs through PyTorch.
OUTDRAFT_SANITIZE=address,undefined builds them with those sanitizers, for tests (`make sanitize`).
"""

import os
import platform
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HOME = Path("src/outdraft/kernels/native")
COMMON = ["packed.cpp", "image.cpp", "read.cpp", "team.cpp", "dispatch.cpp", "api.cpp", "api_guess.cpp", "truncate.cpp"]
COMMON += [
    "suffix_sort.cpp",
    "suffix_search.cpp",
    "suffix_tree.cpp",
    "suffix_guess.cpp",
    "automaton.cpp",
    "api_index.cpp",
    "api_sizes.cpp",
]
FLAGS = [
    "-O3",
    "-g0",
    "-std=c++17",
    "-fPIC",
    "-pthread",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wno-psabi",
    "-Wno-ignored-attributes",
]
FLAGS += ["-Wno-maybe-uninitialized"]  # GCC 12 warns of its own intrinsics
FLAGS += ["-ffp-contract=off"]  # a row's bits must not depend on which tile it is in
LINK = ["-pthread"]
if wanted := os.environ.get("OUTDRAFT_SANITIZE"):
    FLAGS += [f"-fsanitize={wanted}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-O1", "-g"]
    FLAGS += ["-fno-wrapv"]  # Python's own flags hide signed overflow from the sanitizer
    LINK += [f"-fsanitize={wanted}"]
AVX512 = ["-march=x86-64-v4", "-mavx512vnni", "-mavx512bf16"]
AMX = [*AVX512, "-mamx-tile", "-mamx-bf16", "-mamx-int8"]
X86 = {"portable": [], "avx2": ["-march=x86-64-v3"], "avx512": AVX512, "amx": AMX}
SETS = X86 if platform.machine() in ("x86_64", "AMD64") else {"portable": []}


class BuildKernels(build_ext):
    """One plain shared library, without Python's name decoration: it is loaded through `ctypes`."""

    def get_ext_filename(self, name: str) -> str:
        """outdraft/kernels/_native.so."""
        return str(Path(*name.split("."))) + ".so"

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """No PyInit function."""
        return []

    def build_extension(self, ext: Extension) -> None:
        """Common files, then `isa.cpp` once for each instruction set, linked together."""
        temp, compiler = self.build_temp, self.compiler
        objects = compiler.compile([str(HOME / name) for name in COMMON], output_dir=temp, extra_preargs=FLAGS)
        for isa, flags in SETS.items():
            objects += compiler.compile(
                [str(HOME / "isa.cpp")],
                output_dir=str(Path(temp) / isa),
                macros=[("OD_ISA", isa)],
                extra_preargs=[*FLAGS, *flags],
            )
        compiler.link_shared_object(objects, self.get_ext_fullpath(ext.name), target_lang="c++", extra_postargs=LINK)


sources = [str(HOME / name) for name in [*COMMON, "isa.cpp"]]
headers = [str(path) for path in sorted(HOME.glob("*.h"))]
setup(
    ext_modules=[Extension("outdraft.kernels._native", sources, depends=headers, optional=True)],
    cmdclass={"build_ext": BuildKernels},
)
