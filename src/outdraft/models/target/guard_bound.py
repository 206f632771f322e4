"""How much a pass may change a difference of two logits, where rows depend on the pass that they are computed in."""

import torch

from outdraft.models.networks.network import Network
from outdraft.options.errors import ConfigError

DEFAULT_BOUND = {torch.float32: 1e-3}  # 30 times the largest change seen; the other types change too much to guard


def find_bound(decoder: Network, asked: float | None) -> float:
    """The guard's bound (`decode/guard.py`): as asked, or what suits the network's type; 0 where rows are exact."""
    if asked is not None and not 0 <= asked < float("inf"):
        raise ConfigError(
            f"guard={asked} is out of range: it must be a difference of two logits, at least 0 (0 is off)"
        )
    if decoder.exact:
        return 0.0
    return DEFAULT_BOUND.get(decoder.dtype, 0.0) if asked is None else asked
