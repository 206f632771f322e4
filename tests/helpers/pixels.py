"""A codec of pixels: an image of WIDTH columns and LEVELS shades of grey, read row by row, an id a pixel.

tensor [rows, WIDTH] of 0..LEVELS - 1   <->   ids; a row that was cut short is filled up with 0
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from outdraft.options.errors import RequestError

WIDTH, LEVELS = 4, 8


class PixelStream:
    """Whole rows as they are written."""

    def __init__(self, codec: "PixelCodec") -> None:
        self._codec, self._begun = codec, []

    def push(self, token: int) -> Tensor:
        self._begun.append(token)
        return self.finish() if len(self._begun) == WIDTH else self._codec.decode([])

    def finish(self) -> Tensor:
        row, self._begun = self._codec.decode(self._begun), []
        return row


class PixelCodec:
    """Ids 0..LEVELS - 1 are shades; the one behind them ends an image."""

    encodes = Tensor
    vocab_size = LEVELS + 1
    eos_token_ids = frozenset({LEVELS})

    def encode(self, content: Tensor) -> list[int]:
        if content.dim() != 2 or content.shape[1] != WIDTH:
            raise RequestError(f"an image has {WIDTH} columns, and this one has the shape {list(content.shape)}")
        return content.flatten().tolist()

    def decode(self, ids: Iterable[int]) -> Tensor:
        known = [one for one in ids if one < LEVELS]
        return torch.tensor([*known, *[0] * (-len(known) % WIDTH)]).long().view(-1, WIDTH)

    def stream(self, *, continues: bool = True) -> PixelStream:
        return PixelStream(self)
