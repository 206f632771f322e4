"""Builds the native kernels (src/outdraft/kernels/native) beside the package, where there is a C++17 compiler.

The same source is compiled once for each instruction set; which one runs is decided when it is loaded. The kernels are
optional: without a compiler the installation goes on, with a warning, and everything runs through PyTorch.
OUTDRAFT_SANITIZE=address,undefined builds them with those sanitizers, for tests (`make sanitize`).

The library is loaded through `ctypes` and knows nothing of Python, so one wheel a platform serves every Python 3:
`py3-none-<platform>`. OUTDRAFT_KERNELS_BUILD=off leaves the kernels out, and so does a failed build: `py3-none-any`.
OUTDRAFT_URL is the address of the repository, for a release: it turns the README's relative links into absolute ones,
which is what an index shows, and fills in the project's links. Without it the package names no address.
"""

import os
import platform
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import LinkError
from setuptools.modified import newer_group

HOME = Path("src/outdraft/kernels/native")
COMMON = ["packed.cpp", "blocks.cpp", "image.cpp", "read.cpp", "team.cpp", "dispatch.cpp", "truncate.cpp"]
COMMON += ["api.cpp", "api_guess.cpp", "api_index.cpp", "api_sizes.cpp"]
COMMON += ["suffix_sort.cpp", "suffix_search.cpp", "suffix_tree.cpp", "suffix_guess.cpp", "automaton.cpp"]
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
FLAGS += ["-fno-wrapv"]  # Python's own flags ask for signed overflow that wraps, and loops take a tenth longer with it
LINK = ["-pthread"]
STATIC = ["-static-libstdc++", "-static-libgcc"] if sys.platform == "linux" else []  # no C++ library on the user's side
if wanted := os.environ.get("OUTDRAFT_SANITIZE"):
    FLAGS += [f"-fsanitize={wanted}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-O1", "-g"]
    LINK += [f"-fsanitize={wanted}"]
    STATIC = []
AVX512 = ["-march=x86-64-v4", "-mavx512vnni", "-mavx512bf16"]
AMX = [*AVX512, "-mamx-tile", "-mamx-bf16", "-mamx-int8"]
# GCC would make all products of a tile before it adds them, and keep them in memory: AVX2 has 16 registers.
AVX2 = ["-march=x86-64-v3", "-fno-tree-ter", "-fno-tree-reassoc"]
X86 = {"portable": [], "avx2": AVX2, "avx512": AVX512, "amx": AMX}
ARM = {"portable": [], "neon": ["-DOD_NEON"], "neon_dot": ["-DOD_NEON", "-march=armv8.2-a+dotprod"]}
SETS = {"x86_64": X86, "AMD64": X86, "aarch64": ARM, "arm64": ARM}.get(platform.machine(), {"portable": []})


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
        library = self.get_ext_fullpath(ext.name)
        stale = newer_group([*ext.sources, *ext.depends, __file__], library, "newer")
        if not (stale or self.force or wanted):
            print(f"{library} is newer than its source: nothing to compile")
            return
        print(f"compiling the kernels for {', '.join(SETS)}: minutes, once; OUTDRAFT_KERNELS_BUILD=off leaves them out")
        temp, compiler = self.build_temp, self.compiler
        objects = compiler.compile([str(HOME / name) for name in COMMON], output_dir=temp, extra_preargs=FLAGS)
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # each is a process of the compiler's
            for made in pool.map(lambda one: self._compile_set(*one), SETS.items()):
                objects += made
        try:
            compiler.link_shared_object(objects, library, target_lang="c++", extra_postargs=[*LINK, *STATIC])
        except LinkError:
            if not STATIC:
                raise
            print("no static libstdc++ here: linking with the shared one")
            compiler.link_shared_object(objects, library, target_lang="c++", extra_postargs=LINK)

    def _compile_set(self, isa: str, flags: list[str]) -> list[str]:
        made: list[str] = self.compiler.compile(
            [str(HOME / "isa.cpp")],
            output_dir=str(Path(self.build_temp) / isa),
            macros=[("OD_ISA", isa)],
            extra_preargs=[*FLAGS, *flags],
        )
        return made


class Wheel(bdist_wheel):
    """A wheel for every Python 3: of this platform if it holds the kernels, else of any."""

    def get_tag(self) -> tuple[str, str, str]:
        """py3-none-linux_x86_64 and its like, or py3-none-any."""
        has_kernels = any(Path(self.bdist_dir).rglob("_native.so"))
        return ("py3", "none", super().get_tag()[2] if has_kernels else "any")


def readme(address: str) -> str:
    """README.md; with an address, links and pictures of the repository are absolute."""
    text = Path("README.md").read_text(encoding="utf-8")
    if not address:
        return text
    raw = re.sub(r"!\[([^\]]*)\]\((?!https?:|#)([^)]+)\)", rf"![\1]({address}/raw/HEAD/\2)", text)
    return re.sub(r"(?<!!)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)", rf"[\1]({address}/blob/HEAD/\2)", raw)


def links(address: str) -> dict[str, str]:
    """The project's links; none without an address."""
    pages = {
        "Source": "",
        "Documentation": "/tree/HEAD/docs",
        "Changelog": "/blob/HEAD/CHANGELOG.md",
        "Issues": "/issues",
    }
    return {name: address + path for name, path in pages.items()} if address else {}


URL = os.environ.get("OUTDRAFT_URL", "").rstrip("/")
sources = [str(HOME / name) for name in [*COMMON, "isa.cpp"]]
headers = [str(path) for path in sorted(HOME.glob("*.h"))]
kernels = Extension("outdraft.kernels._native", sources, depends=headers, optional=True)
setup(
    ext_modules=[] if os.environ.get("OUTDRAFT_KERNELS_BUILD") == "off" else [kernels],
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": Wheel},
    long_description=readme(URL),
    long_description_content_type="text/markdown",
    project_urls=links(URL),
)
