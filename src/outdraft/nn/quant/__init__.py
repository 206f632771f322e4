"""Linear maps whose weights are small integers: the grid, the map, and how to choose the integers."""

from outdraft.nn.quant.config import QuantConfig
from outdraft.nn.quant.linear import QuantLinear

__all__ = ["QuantConfig", "QuantLinear"]
