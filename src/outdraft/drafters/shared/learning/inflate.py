"""The parts of a trained head, made to fit the target that `models.inflate` makes of a small one: the same guesses.

channels      k times, as the target's are; a matrix that reads several states (taps; embedding and feature) reads
              k copies of each
exit, taps    "after t layers" becomes the place where the inflated target has done t real layers and the identity
              layers behind them, so that an exit keeps its share of the depth
"""

import torch
from torch import Tensor

from outdraft.models.remake.inflate import spread


def layers_after(done: int, num_layers: int, depth: int) -> int:
    """How many layers of the inflated target end where `done` of `num_layers` did."""
    return sum(layer < done for layer, _ in spread(num_layers, depth))


def widen(small: Tensor, width: int, states: int = 1, heights: list[int] | None = None) -> Tensor:
    """A norm or a bias, or a matrix that reads `states` states side by side and writes parts of these heights."""
    if small.dim() == 1:
        return torch.cat([part.repeat(width) for part in torch.split(small, heights or [len(small)])])
    columns = torch.cat([part.repeat(1, width) for part in small.chunk(states, 1)], 1) / width
    parts = torch.split(columns, heights or [columns.shape[0]])
    return torch.cat([part.repeat(width, 1) for part in parts])
