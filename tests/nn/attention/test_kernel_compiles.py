"""The Triton kernel compiles to machine code of real GPUs; that needs Triton and no GPU."""

import importlib.util
import os
import subprocess
import sys

import pytest

PROGRAM = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from outdraft.nn.attention import triton_kernel as kernels

FLOATS = {"q": "*bf16", "keys": "*bf16", "values": "*bf16", "out": "*bf16", "partial": "*fp32", "peaks": "*fp32",
          "sums": "*fp32", "scale": "fp32", "cap": "fp32"}
INTEGERS = ("positions", "sees", "bases", "starts", "counts", "tables", "block_seqs", "block_rows", "owners")
COMMON = {"D": %(width)d, "D_PADDED": %(width)d, "SPLIT": 256}
SCORE = {"GROUPS": %(groups)d, "PADDED": %(groups)d, "M": 64, "N": 64, "PAGE": 16, "WINDOWED": True, "CAPPED": True}
for function, constants in ((kernels._score, COMMON | SCORE), (kernels._add_up, COMMON)):
    kinds = {}
    for name in function.arg_names:
        kinds[name] = "constexpr" if name in constants else FLOATS.get(name, "*i64" if name in INTEGERS else "i32")
    source = ASTSource(function, kinds, constexprs=constants)
    made = triton.compile(source, target=GPUTarget("cuda", %(target)d, 32), options={"num_stages": 2})
    assert len(made.asm["cubin"]) > 0
    assert made.metadata.shared <= %(shared)d, made.metadata.shared
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize(("target", "shared"), [(80, 163 << 10), (89, 99 << 10), (90, 227 << 10)])
@pytest.mark.parametrize(("groups", "width"), [(1, 64), (4, 128)])
def test_it_compiles_and_fits_into_shared_memory(target, shared, groups, width):
    program = PROGRAM % {"target": target, "shared": shared, "groups": groups, "width": width}
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", program], env=kept, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
