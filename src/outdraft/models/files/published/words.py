"""Small unsigned integers out of 32-bit words, the lowest bits first: what GPTQ, AWQ and compressed-tensors share."""

import torch
from torch import Tensor

PACKED_BITS = (4, 8)  # of the integers that are read


def per_word(bits: int) -> int:
    """How many integers of so many bits one word holds."""
    return 32 // bits


def unpack_words(words: Tensor, bits: int) -> Tensor:
    """words int32 [..., W] -> uint8 [..., W, 32 / bits]: the integers of each word, from its lowest bits up."""
    parts = words.contiguous().view(torch.uint8).view(*words.shape, 4)  # bytes, as in the file: the lowest first
    if bits == 8:
        return parts
    return torch.stack((parts & 15, parts >> 4), -1).flatten(-2)
