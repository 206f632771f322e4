"""A weight that no grid of integers can hold is named when a network is loaded, whatever its file says."""

import pytest
import torch
from torch import nn

from outdraft.drafters.shared.networks.rounding import round_linears
from outdraft.nn.linear import Linear
from outdraft.nn.quant.config import QuantConfig
from outdraft.nn.quant.linear import QuantLinear
from outdraft.options.errors import ConfigError, ModelLoadError


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), 1e6])
@pytest.mark.parametrize("bits", [8, 4])
def test_what_cannot_be_rounded_is_named(weight: float, bits: int):
    net = nn.ModuleDict({"head": Linear(64, 32, False, torch.float32, torch.device("cpu"))})
    with torch.no_grad():
        net["head"].weight.fill_(1.0)
        net["head"].weight[3, 5] = weight
    with pytest.raises(ModelLoadError, match=f"head holds a weight of .* rounded to {bits} bits"):
        round_linears(net, QuantConfig(bits=bits, keep=()))


def test_a_map_that_does_not_come_in_groups_stays_unless_its_rounding_was_asked_for():
    device = torch.device("cpu")
    net = nn.ModuleDict(
        {"wide": Linear(64, 8, False, torch.float32, device), "thin": Linear(20, 64, False, torch.float32, device)}
    )
    for one in net.parameters():
        nn.init.ones_(one)
    with pytest.raises(ConfigError, match="the 20 inputs of thin leave 20 behind groups of 32: take 'auto'"):
        round_linears(net, QuantConfig(bits=8, keep=("wide",)))
    round_linears(net, QuantConfig(bits=8, keep=()), asked=False)
    assert isinstance(net["wide"], QuantLinear) and isinstance(net["thin"], Linear)
