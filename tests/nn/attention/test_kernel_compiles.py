"""The Triton kernel compiles to machine code of real GPUs; that needs Triton and no GPU."""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch

PROGRAM = """
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from outdraft.nn.attention import triton_kernel as kernels

KIND = {torch.bfloat16: "*bf16", torch.float32: "*fp32"}[torch.%(dtype)s]
FLOATS = {"q": KIND, "keys": KIND, "values": KIND, "out": KIND, "partial": "*fp32", "peaks": "*fp32",
          "sums": "*fp32", "scale": "fp32", "cap": "fp32"}
INTEGERS = ("positions", "sees", "bases", "starts", "counts", "tables", "block_seqs", "block_rows", "owners")
COMMON = {"D": %(width)d, "D_PADDED": %(width)d, "SPLIT": 256}
SLOTS = kernels.tile_slots(%(width)d, torch.%(dtype)s)
SCORE = {"GROUPS": %(groups)d, "PADDED": %(groups)d, "M": 64, "N": SLOTS, "PAGE": 16, "WINDOWED": True, "CAPPED": True}
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
@pytest.mark.parametrize(
    ("groups", "width", "dtype"), [(1, 64, "bfloat16"), (4, 128, "bfloat16"), (2, 256, "bfloat16"), (4, 128, "float32")]
)
def test_it_compiles_and_fits_into_shared_memory(target, shared, groups, width, dtype):
    program = PROGRAM % {"target": target, "shared": shared, "groups": groups, "width": width, "dtype": dtype}
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", program], env=kept, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_heads_too_wide_for_a_tile_are_left_to_the_reference():
    from outdraft.nn.attention.triton_kernel import tile_slots

    assert [tile_slots(width, torch.bfloat16) for width in (80, 128, 192, 256, 512)] == [64, 64, 32, 32, 0]
    assert tile_slots(256, torch.float32) == 0
