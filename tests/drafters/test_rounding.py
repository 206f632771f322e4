"""A weight that no grid of integers can hold is named when a network is loaded, whatever its file says."""

import pytest
import torch
from torch import nn

from outdraft.drafters.shared.networks.rounding import round_linears
from outdraft.nn.linear import Linear
from outdraft.nn.quant.config import QuantConfig
from outdraft.options.errors import ModelLoadError


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), 1e6])
@pytest.mark.parametrize("bits", [8, 4])
def test_what_cannot_be_rounded_is_named(weight: float, bits: int):
    net = nn.ModuleDict({"head": Linear(64, 32, False, torch.float32, torch.device("cpu"))})
    with torch.no_grad():
        net["head"].weight.fill_(1.0)
        net["head"].weight[3, 5] = weight
    with pytest.raises(ModelLoadError, match=f"head holds a weight of .* rounded to {bits} bits"):
        round_linears(net, QuantConfig(bits=bits, keep=()))
