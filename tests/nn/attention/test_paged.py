"""Attention over pages: the reference against every row by itself, the kernel against the reference."""

import importlib.util
import os

import pytest
import torch
from nn.attention.made_rows import MadePass

from outdraft.nn.attention.context import paged_attention

SCALE = 0.3
WINDOWS = (None, 1, 9, 64)
CAPS = (None, 0.8)  # scores are about as large


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("seed", range(12))
def test_reference_is_each_row_by_itself(seed, window, cap):
    made = MadePass(seed, dtype=torch.float64)
    out = paged_attention(made.q, made.keys, made.values, made.buffers.rows, window=window, scale=SCALE, cap=cap)
    wanted = made.one_by_one(window, SCALE, cap)
    assert (out[: made.num_rows] - wanted).abs().max() < 1e-12
    assert bool((out[made.num_rows :] == 0).all()), "padding rows see nothing"


def interpreter_or_gpu() -> str | None:
    """Why the kernel cannot run here; None: it can."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        return "no GPU, and TRITON_INTERPRET=1 is not set"
    return None


@pytest.mark.skipif(interpreter_or_gpu() is not None, reason=str(interpreter_or_gpu()))
class TestKernel:
    device = "cuda" if torch.cuda.is_available() else "cpu"

    @pytest.mark.parametrize("cap", CAPS)
    @pytest.mark.parametrize("window", WINDOWS)
    @pytest.mark.parametrize("shape", [(4, 2, 16), (6, 2, 24), (8, 8, 64), (8, 1, 128)], ids=str)
    @pytest.mark.parametrize("seed", range(4))
    def test_kernel_is_the_reference(self, seed, shape, window, cap):
        from outdraft.nn.attention.triton_kernel import paged_attention as kernel

        heads, kv_heads, width = shape
        made = MadePass(seed, heads=heads, kv_heads=kv_heads, width=width, device=self.device)
        given = (made.q, made.keys, made.values, made.buffers.rows)
        found = kernel(*given, window=window, scale=SCALE, cap=cap)
        wanted = paged_attention(*given, window=window, scale=SCALE, cap=cap)
        assert (found - wanted).abs().max() < 1e-5

    def test_a_chain_has_the_bits_of_one_row_at_a_time(self):
        from outdraft.nn.attention.rows import NewRows, RowBuffers, chain_bits, find_bucket
        from outdraft.nn.attention.triton_kernel import paged_attention as kernel

        torch.manual_seed(3)
        n, base, pages = 9, 250, list(range(1, 18))
        keys, values = (torch.randn(18, 2, 16, 16, device=self.device) for _ in range(2))
        q = torch.randn(n, 4, 16, device=self.device)

        def run(first: int, count: int) -> torch.Tensor:
            bucket = find_bucket(rows=count, seqs=1, pages=len(pages), groups=2, max_pages=64)
            buffers = RowBuffers(bucket, 0, q.device)
            places = range(base + first, base + first + count)
            new = NewRows(ids=[0] * count, positions=places, base=base + first, sees=chain_bits(count), pages=pages)
            buffers.fill([new])
            padded = torch.zeros(bucket.rows, 4, 16, device=self.device)
            padded[:count] = q[first : first + count]
            return kernel(padded, keys, values, buffers.rows, window=None, scale=SCALE)[:count]

        whole = run(0, n)
        alone = torch.cat([run(i, 1) for i in range(n)])
        assert torch.equal(whole, alone)
