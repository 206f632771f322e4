"""Weights to blocks and back: the error of each type, and what has no place in a search."""

import numpy as np
import pytest
import torch

from outdraft.nn.quant.block_codes import QUANTIZERS, quantize
from outdraft.nn.quant.block_search import index_of
from outdraft.nn.quant.blocks import BLOCKS, CURVE, dequantize

gguf = pytest.importorskip("gguf")
LOST = {  # of the squares, and of the fourth powers, in which large weights count more; as measured
    "Q4_0": (0.008635, 0.0008874),
    "Q4_1": (0.005455, 0.0004873),
    "Q5_0": (0.002142, 0.0002078),
    "Q5_1": (0.001266, 0.0001092),
    "Q8_0": (3.651e-05, 3.33e-06),
    "Q2_K": (0.08024, 0.008681),
    "Q3_K": (0.024, 0.00259),
    "Q4_K": (0.005729, 0.0005294),
    "Q5_K": (0.001448, 0.0001417),
    "Q6_K": (0.000362, 3.172e-05),
    "IQ4_NL": (0.006492, 0.0009506),
    "IQ4_XS": (0.006685, 0.001014),
}


def weights(rows: int = 64, num_in: int = 1024) -> torch.Tensor:
    """Like those of a trained matrix: normal numbers, and a few that are much larger."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(rows, num_in, generator=random) * 0.02
    return torch.where(torch.rand(x.shape, generator=random) < 0.002, 6 * x, x)


def lost(x: torch.Tensor, kind: str, raw: torch.Tensor) -> tuple[float, float]:
    far = (dequantize(raw, kind) - x).square()
    return float(far.sum() / x.square().sum()), float((far * x.square()).sum() / x.pow(4).sum())


@pytest.mark.parametrize("kind", QUANTIZERS)
def test_no_more_is_lost_than_was_measured(kind: str) -> None:
    x = weights()
    for now, then in zip(lost(x, kind, quantize(x, kind)), LOST[kind], strict=True):
        assert 0.998 * then < now < 1.002 * then


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_the_packages_own_rounding_loses_no_less(kind: str) -> None:
    x = weights()
    theirs = torch.from_numpy(gguf.quants.quantize(x.numpy(), gguf.GGMLQuantizationType[kind]))
    for ours, other in zip(lost(x, kind, quantize(x, kind)), lost(x, kind, theirs), strict=True):
        assert ours < (1 if kind == "Q8_0" else 0.985) * other


@pytest.mark.parametrize("kind", QUANTIZERS)
def test_pieces_join_and_empty_blocks_stay_empty(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = weights(7, 512)
    x[2] = 0
    x[3, :256] = 0
    whole = quantize(x, kind)
    assert torch.equal(dequantize(whole, kind)[2], x[2]) and dequantize(whole, kind)[3, :256].abs().max() == 0
    monkeypatch.setattr("outdraft.nn.quant.block_codes._AT_ONCE", 1024)
    assert torch.equal(quantize(x, kind), whole) and torch.equal(quantize(x.bfloat16(), kind)[2], whole[2])


@pytest.mark.parametrize("kind", QUANTIZERS)
@pytest.mark.parametrize("value", [0.5, -0.5, 3e-9, -2e4])
def test_one_number_everywhere(kind: str, value: float) -> None:
    """Scales of any sign, of numbers that float16 does not reach down to, and of large ones."""
    made = quantize(torch.full((2, 256), value), kind)
    assert BLOCKS[kind].are_finite(made)
    wanted = value if abs(value) > 1e-6 else 0.0
    assert torch.allclose(dequantize(made, kind), torch.tensor(wanted), rtol=0.01, atol=1e-7)


@pytest.mark.parametrize("kind", QUANTIZERS)
def test_what_cannot_be_a_scale_is_seen(kind: str) -> None:
    assert not BLOCKS[kind].are_finite(quantize(torch.full((1, 256), 3e8), kind))


@pytest.mark.parametrize("kind", QUANTIZERS)
def test_weights_that_were_rounded_before_hardly_change(kind: str) -> None:
    once = dequantize(quantize(weights(), kind), kind)
    assert lost(once, kind, quantize(once, kind))[0] < (0.03 if kind == "Q2_K" else 0.0025)


def test_nearest_levels() -> None:
    x = torch.linspace(-200, 200, 4001, dtype=torch.float64)
    levels = torch.tensor(CURVE)
    wanted = np.abs(x.numpy()[:, None] - levels.numpy()).min(1)
    assert np.allclose((x - levels[index_of(levels, x)]).abs().numpy(), wanted)
