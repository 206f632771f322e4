"""`python -m lab.native_mutants build/temp.*`: small faults in the C++ of products and attention; what do tests see?

A fault is one changed operator, bound, shift or constant. The one object file that it is in is compiled anew, with
fewer optimisations, and linked with the others of a build; the tests then run against that library.
Exit code 1 if a fault survives that is not known to change nothing.
"""

import argparse
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

_BLOCKS = ("tests/kernels/test_blocks.py", "tests/weights/test_gguf_blocks.py", "tests/models/test_block_rows.py")
_ROWS = tuple(f"tests/kernels/test_{name}.py" for name in ("matrix", "stack", "ragged", "distributions"))
_SETS = {"blocks.cpp": "", "block_strip.h": "portable"}  # of a build; the others: AVX2
FAULTS: dict[str, tuple[tuple[str, str], ...]] = {
    "blocks.cpp": (
        ("codes[i] = from[i] & 15,", "codes[i] = from[i] & 7,"),
        ("(from[i] >> 6) << 4", "(from[i] >> 7) << 4"),
        ("(from[i + 4] >> 6) << 4", "(from[i] >> 6) << 4"),
        ("from[i] ^ 0x80", "from[i] ^ 0x81"),
        ("from[i / 8] >> i % 8 & 1", "from[i / 8] >> i % 7 & 1"),
        ("half_at(from + 82) ^ 0x8000", "half_at(from + 82)"),
        ("bits - 32", "bits - 31"),
        ("scales[8 + i % 4] >> i / 4 * 2", "scales[8 + i % 4] >> i / 4"),
        ("(fives ? 32 : 0)", "(fives ? 16 : 0)"),
        ("at / 32 * 2 & 3", "at / 32 * 2 & 1"),
        ("high >> 2 * i & 3", "high >> i & 3"),
        ("from[i] == 0x7f ? 0 : from[i] & 0x7f", "from[i] & 0x7f"),
        ("(half & 0x7c00) == 0x7c00", "(half & 0x7c00) > 0x7c00"),
        ("<< i / 8 * 2", "<< i / 8"),
        ("half & 0x8000 ?", "half & 0x4000 ?"),
        ("0x7fff + (word", "0x8000 + (word"),
        ("byte - 128", "byte - 127"),
        ("m * open.leasts[sub]", "m * open.scales[sub]"),
    ),
    "block_strip.h": (
        ("bits_of(both, 4, 15)", "bits_of(both, 4, 7)"),
        ("(u32x16)two << 4", "(u32x16)two << 3"),
        ("<< (format.bits - 1)", "<< (format.bits - 2)"),
        ("taken * format.zero", "taken * (format.zero + 1)"),
        ("for (int s = 0; s < 8; s++)", "for (int s = 0; s < 7; s++)"),
        ("to_float(bytes >> 4)", "to_float(bytes >> 3)"),
        ("bytes < 2 ?", "bytes < 1 ?"),
        ("(bytes + 1) << 21", "(bytes + 1) << 20"),
        ("taken[0] + taken[1] : taken[i]", "taken[0] + taken[1] : taken[0]"),
        ("float(-taken[i])", "float(taken[i])"),
        ("w + 16 * (subs + i)", "w + 16 * subs"),
        ("std::size_t(row) * 2 * all", "std::size_t(row) * all"),
    ),
    "block_strip_avx2.h": (
        ("format.bits == 6 ? 2", "format.bits == 6 ? 4"),
        ("format.bits == 4 && !format.table ? 8", "format.bits == 4 ? 8"),
        ("? 8 : 4;", "? 8 : 8;"),
        ("_mm256_cmpgt_epi32(bytes, _mm256_set1_epi32(1))", "_mm256_cmpgt_epi32(bytes, _mm256_set1_epi32(2))"),
        ("_mm256_set1_epi32(1)), 21)", "_mm256_set1_epi32(1)), 22)"),
        ("_mm256_srli_epi32(bytes, 4)", "_mm256_srli_epi32(bytes, 3)"),
        ("moved<low - j / 2 * 2>", "moved<low - j / 2>"),
        ("_mm256_sign_epi8(own, codes)", "own"),
        ("begin * format.zero", "begin * (format.zero - 1)"),
        ("float(-offsets[2 * at + i])", "float(-offsets[2 * at])"),
        ("half_floats(w + 32 + 16 * c)", "half_floats(w + 32)"),
        ("std::size_t(row) * 2 * all", "std::size_t(row) * all"),
    ),
    "simd.h": (
        ("x < lowest ? zero", "x < zero ? zero"),
        ("(n + 127) << 23", "(n + 126) << 23"),
        ("1.0f / 24,", "1.0f / 23,"),
        ("(v[1] & 255)", "(v[1] & 127)"),
        ("permute4x64_epi64(both, 0xd8)", "permute4x64_epi64(both, 0xe4)"),
        ("return a > b ? a : b;", "return a < b ? a : b;"),
        ("x + Count / 2, sizeof high", "x, sizeof high"),
        ("> 0x7f800000)", "> 0x7fc00000)"),
    ),
    "attention.h": (
        ("(J & S ? kLanes + J - S : J)", "(J & S ? kLanes + J : J)"),
        ("(J & S ? kLanes + J : J + S)", "(J & S ? kLanes + J : J)"),
        ("(p & S / kLanes)", "(p & S)"),
        ("place >= query.first", "place > query.first"),
        ("place < query.len", "place <= query.len"),
        ("block * 16 + p * kLanes, p)", "block * 16, p)"),
        ("score *= load_part", "score += load_part"),
        ("e > Floats{} ? e * load_part", "e > Floats{} ? load_part"),
    ),
    "operand.h": (
        ("nearest_of(load_part(x + p * kLanes) * by) + more", "nearest_of(load_part(x + p * kLanes) * by)"),
        ("kind == Kind::int8g ? 128 : 8", "kind == Kind::int8g ? 127 : 8"),
        ("r * line_bytes(m) / sizeof(Half)", "r * line_bytes(m) / 2"),
    ),
    "tiles_avx2.h": (
        ("from ? _mm256_loadu_ps(out + r * stride + 8 * c)", "from ? _mm256_loadu_ps(out + 8 * c)"),
        ("block) * m.num_in + from)", "block) * m.num_in)"),
        ("lines + r * line + k + odd", "lines + r * line + k"),
        ("(odd ? _mm256_and", "(!odd ? _mm256_and"),
    ),
    "linear.h": (
        ("begin = rows * chunk / chunks", "begin = rows * chunk / chunks + 1"),
        ("end - row, to,", "rows - row, to,"),
        ("piece % blocks", "piece / chunks"),
    ),
}
SAME: dict[tuple[str, str], str] = {  # file and fault -> why no run can differ
    ("block_strip.h", "w + 16 * (subs + i)"): "same: formats with bytes of leasts have one sub-block in a group",
    ("linear.h", "end - row, to,"): "same: a tile would write rows of the next chunk too, as they are",
    ("operand.h", "kind == Kind::int8g ? 128 : 8"): "same: AVX2 multiplies signed bytes, and corrects nothing",
}


class Builder:
    """The library, in a copy of the package. `objects`: the folder where setup.py's build keeps its object files."""

    def __init__(self, place: Path, objects: Path) -> None:
        with patch("setuptools.setup"):
            self._told: dict[str, Any] = runpy.run_path("setup.py")
        self.package, self._place, self._objects = place / "src/outdraft", place, objects
        shutil.copytree("src/outdraft", self.package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))

    def build(self, file: str, fault: tuple[str, str]) -> None:
        """With the fault in a file."""
        native, isa = self.package / "kernels/native", _SETS.get(file, "avx2")
        text = (native / file).read_text(encoding="utf-8")
        if text.count(fault[0]) != 1:
            raise SystemExit(f"{file} has {fault[0]!r} {text.count(fault[0])} times")
        (native / file).write_text(text.replace(*fault), encoding="utf-8")
        unit, made = "isa.cpp" if isa else file, self._place / "made.o"
        flags = [*self._told["FLAGS"], "-O1", *([f"-DOD_ISA={isa}", *self._told["SETS"][isa]] if isa else [])]
        subprocess.run(["g++", *flags, "-c", native / unit, "-o", made], check=True)
        (native / file).write_text(text, encoding="utf-8")
        old = self._objects / isa / self._told["HOME"] / f"{Path(unit).stem}.o"
        others = [one for one in self._objects.rglob("*.o") if one != old]
        link = ["g++", "-shared", made, *others, *self._told["LINK"], "-o", self.package / "kernels/_native.so"]
        subprocess.run(link, check=True)


def killer(builder: Builder, file: str) -> str | None:
    """The first test that fails on what was built."""
    isa, tests = _SETS.get(file, "avx2"), _BLOCKS if file.startswith("block") else _ROWS
    env = os.environ | {"PYTHONPATH": os.pathsep.join((str(builder.package.parent), os.getcwd()))}
    env |= {"OUTDRAFT_KERNELS": isa} if isa else {}
    others = " and ".join(f"not {other}" for other in ("portable", "avx2") if isa and other != isa)
    words = [sys.executable, "-m", "pytest", "-x", "-n0", "-p", "no:cacheprovider", "-k", others, *tests]
    ran = subprocess.run(words, env=env, capture_output=True, text=True)
    failed = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].partition(" - ")[0] if failed else f"exit code {ran.returncode}" if ran.returncode else None


def main(words: list[str] | None = None) -> int:
    """Try them, a line each."""
    parser = argparse.ArgumentParser(prog="python -m lab.native_mutants", description="Faults in the C++.")
    parser.add_argument("objects", type=Path, help="build/temp.*, where `python setup.py build` keeps its object files")
    parser.add_argument("--file", choices=FAULTS, help="those of one file")
    asked = parser.parse_args(words)
    survived = 0
    with TemporaryDirectory(prefix="outdraft-native-") as place:
        builder = Builder(Path(place), asked.objects)
        for file, faults in FAULTS.items():
            for fault in faults if asked.file in (None, file) else ():
                builder.build(file, fault)
                by = killer(builder, file)
                survived += by is None and (file, fault[0]) not in SAME
                sys.stdout.write(f"{file}: {fault[0]} -> {fault[1]}: {by or SAME.get((file, fault[0]), 'survives')}\n")
                sys.stdout.flush()
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main())
