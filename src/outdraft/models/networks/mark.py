"""A mark of a model: the weights of its final norm, which no rounding changes.

A target in 4 bits, packed for the kernels or read from another container has the norms of the model that it was made
from; another model, and one whose training went on, has others. A low-rank change leaves them, and the mark with them.
"""

import hashlib

import torch

from outdraft.models.networks.network import Network


@torch.no_grad()
def norm_mark(target: Network) -> str:
    """A digest of what the final norm makes of 1, -1, 1, ..., as bfloat16: 16 hexadecimal digits."""
    ones = torch.ones(1, target.config.hidden_size, dtype=target.dtype, device=target.device)
    ones[:, 1::2] = -1  # of mean 0 and variance 1, so that any norm leaves its weights
    bits = target.norm(ones).to("cpu", torch.bfloat16).view(torch.int16)
    return hashlib.sha256(bits.numpy().tobytes()).hexdigest()[:16]
