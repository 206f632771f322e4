"""Rows of a target's head are what it says of unit vectors, its scale included, whatever holds it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from contracts.native_rows import small

from outdraft.models.networks.base import Decoder
from outdraft.models.networks.native import NativeDecoder
from outdraft.models.networks.port import TargetLayers

IDS = torch.tensor([0, 7, 40, 96])


def scaled() -> Decoder:
    """A bfloat16 network whose logits have a scale."""
    plain = small(97)
    made = Decoder(replace(plain.config, logit_scale=0.7), dtype=torch.bfloat16)
    made.load_state_dict(plain.state_dict())
    return made.requires_grad_(False).eval()


@pytest.mark.parametrize("kind", ["decoder", "native", "other"])
def test_rows_say_what_the_head_says(kind):
    network = scaled()
    if kind == "native":
        network = NativeDecoder(network)
    elif kind == "other":  # one that has nothing but a head, which has a bias
        plain = network
        network = SimpleNamespace(
            config=plain.config, dtype=plain.dtype, device=plain.device, head=lambda h: plain.head(h).float() + 2
        )
    layers = TargetLayers(network, exact=False, record=None)
    rows = layers.head_rows(IDS)
    whole = layers.head(torch.eye(64, dtype=torch.bfloat16)) - layers.head(torch.zeros(1, 64, dtype=torch.bfloat16))
    assert rows.shape == (4, 64) and rows.float().std() > 0.05
    assert torch.allclose(rows.float(), whole[:, IDS].T.float(), atol=1e-6, rtol=8e-3)
    other = scaled()
    assert not torch.allclose(rows.float(), other.lm_head.matrix()[IDS].float(), rtol=8e-3), "without the scale"
