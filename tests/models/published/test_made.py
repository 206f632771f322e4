"""Checkpoints that the packages themselves made (`tests/peers/quantized`): our weights are those of their own code.

`made/NAME` has a package's file, one weight as that package makes it whole, and the logits with all weights so.
"""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from outdraft.models.files.load import fill_decoder, open_weights
from outdraft.models.files.published.formats import FORMATS
from outdraft.nn.context import CausalContext
from outdraft.nn.linear import Linear

MADE = Path(__file__).parent / "made"
NAMES = sorted(path.name for path in MADE.iterdir())
KEYS = slice(64, 96)  # the rows of queries, keys and values that are keys
ROUNDING = 2**-22  # relative, of float32: the packages may multiply in another order


@torch.no_grad()
def logits_of(model, ids):
    return model(ids, torch.arange(len(ids)), CausalContext(1, len(ids)))


@pytest.mark.parametrize("blocks", [True, False])  # as an engine reads it, and what is trained or cut
@pytest.mark.parametrize("name", NAMES)
def test_weights_and_logits_are_those_of_the_package(name, blocks):
    said = load_file(MADE / name / "numbers.safetensors")
    model = fill_decoder(open_weights(MADE / name, "float32", blocks=blocks), torch.device("cpu"))
    held = model.layers[0].qkv
    weight = held.weight if isinstance(held, Linear) else held.dequantize()
    expected = said["whole.model.layers.0.self_attn.k_proj"]
    assert (weight[KEYS] - expected).abs().max() <= ROUNDING * expected.abs().max()
    off = (logits_of(model, said["ids"]) - said["logits"]).abs().max()
    assert off < 1e-4 * said["logits"].std()


def test_every_format_that_is_read_has_a_file():
    told = [json.loads((MADE / name / "config.json").read_text())["quantization_config"] for name in NAMES]
    assert {one["quant_method"] for one in told} == set(FORMATS)
