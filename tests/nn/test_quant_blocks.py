"""Every type of block that GGUF files have, against the `gguf` package bit for bit, and against blocks made by hand."""

import numpy as np
import pytest
import torch

from outdraft.nn.quant.blocks import BLOCKS, dequantize

gguf = pytest.importorskip("gguf")
_HALVES = {  # where a block keeps float16 scales
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
    "MXFP4": (),
    "NVFP4": (),
}


def random_rows(kind: str, rows: int, num_in: int, seed: int = 0, width: float = 1.0) -> np.ndarray:
    """Bytes [rows, bytes of a row], random but for finite float16 scales of about `width`."""
    rng = np.random.default_rng(seed)
    block = BLOCKS[kind]
    raw = rng.integers(0, 256, (rows * num_in // block.weights, block.size), dtype=np.uint8)
    for at in _HALVES[kind]:
        scales = (rng.standard_normal(len(raw)) * width).astype(np.float16)
        raw[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return raw.reshape(rows, -1)


@pytest.mark.parametrize("kind", sorted(BLOCKS))
def test_floats_are_the_packages(kind: str) -> None:
    block = BLOCKS[kind]
    assert gguf.constants.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]] == (block.weights, block.size)
    raw = random_rows(kind, 300, 8 * block.weights)
    wanted = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind]).astype(np.float32)
    made = dequantize(torch.from_numpy(raw), kind)
    assert made.shape == (300, 8 * block.weights) and made.dtype == torch.float32
    assert np.array_equal(made.numpy().view(np.int32), wanted.view(np.int32))
    assert block.row_bytes(made.shape[1]) == raw.shape[1]


def test_another_dtype_is_rounded_once_and_pieces_join(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = torch.from_numpy(random_rows("Q4_K", 7, 512))
    whole = dequantize(raw, "Q4_K")
    monkeypatch.setattr("outdraft.nn.quant.blocks._AT_ONCE", 1024)
    assert torch.equal(dequantize(raw, "Q4_K", torch.bfloat16), whole.bfloat16())


def test_blocks_made_by_hand() -> None:
    """4-bit floats: powers of two as bytes (MXFP4), 8-bit floats as scales (NVFP4), 0x7F a scale of nothing."""
    indices = [i | i << 4 for i in range(16)]
    values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]
    made = dequantize(torch.tensor([[128, *indices]], dtype=torch.uint8), "MXFP4")  # 2 ** (128 - 127)
    assert made.tolist() == [[2 * value for value in values] * 2]
    half = [i | (i + 8) << 4 for i in range(8)]
    scales = [0x38, 0x40, 0x01, 0x7F]  # 1, 2, 2 ** -9, nothing
    made = dequantize(torch.tensor([[*scales, *half * 4]], dtype=torch.uint8), "NVFP4")
    assert made.tolist() == [[scale * value for scale in (1, 2, 2**-9, 0) for value in values]]
