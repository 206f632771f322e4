"""StreamingLLM's cache for a draft model: it keeps the first few and the last rows of a text, so that it never grows.

    text   [ 0 1 2 3 | 4 5 6 7 8 9 ......... 90 | 91 92 93 ... 99 ]      sinks 4, window 9
    cache  [ 0 1 2 3                             | 91 92 93 ... 99 ]     what lies between is dropped
    turned  87 88 89 90                            91 92 93 ... 99       the sinks stand right before the window

Positions are those of the text. Rotary positions are relative, so the window's keys stay as they are, and the sinks are
turned on to the positions right before the window, each time from what they were at first: a new row sees no gap, and
nothing further away than the cache has rows. So a model may go on beyond the context that it was trained on. Xiao et
al., "Efficient streaming language models with attention sinks", 2023, https://arxiv.org/abs/2309.17453. Data in: which
guess rows have become text; data out: nothing, the rows are moved.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.drafters.shared.networks.draft_cache import DraftCache
from outdraft.models.networks.network import Network
from outdraft.nn.rope import Rope
from outdraft.options.errors import CapabilityError


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWindow:
    """How many rows of a text are kept."""

    sinks: int
    window: int

    @property
    def size(self) -> int:
        return self.sinks + self.window


class StreamingCache(DraftCache):
    """`DraftCache` over `stream.size` rows of each text. `num_dropped` counts those that were let go."""

    def __init__(self, decoder: Network, stream: StreamWindow, *, room: int) -> None:
        config = decoder.config
        if config.rope is None:
            raise CapabilityError(
                f"window={stream.window}: a cache that drops rows moves the others, and this draft model's positions "
                "are learned, not rotary: leave window out"
            )
        if config.ropes or config.rope.kind == "longrope":
            raise CapabilityError(
                f"window={stream.window}: a cache that drops rows moves the others, which is not known for this "
                f"draft model ({config.architecture}), whose layers or texts turn positions in different ways: leave "
                "window out"
            )
        sizes, place = (config.num_layers, config.num_kv_heads, config.head_dim), (decoder.dtype, decoder.device)
        super().__init__(*sizes, *place, stream.size + room, exact=decoder.exact)
        self.num_dropped = 0
        self._stream = stream
        self._num_layers = config.num_layers
        self._rope = Rope(config.rope)
        self._dropped: dict[int, int] = {}  # rows of each text
        self._sinks: dict[int, list[Tensor]] = {}  # keys [Hkv, sinks, d] of each layer, as they were turned at first

    def add(self, seq: int) -> None:
        super().add(seq)
        self._dropped[seq] = 0

    def free(self, seq: int) -> None:
        super().free(seq)
        del self._dropped[seq]
        self._sinks.pop(seq, None)

    def keep(self, seq: int, rows: Seq[int]) -> None:
        """These guess rows have become text; the oldest rows behind the sinks make room for them."""
        super().keep(seq, rows)
        if (extra := self.rows.length(seq) - self._stream.size) > 0:
            self._drop(seq, extra)

    def truncate(self, seq: int, length: int) -> int:
        """Forget the guess, and the text from row `length` on; all of it, where that is before the window."""
        kept = length - self._dropped[seq]
        if self._dropped[seq] and kept < self._stream.sinks:
            self._dropped[seq], kept, length = 0, 0, 0
            self._sinks.pop(seq, None)
        super().truncate(seq, kept)
        return length

    def _drop(self, seq: int, count: int) -> None:
        """Move the rows behind the first `count` ones after the sinks to where these stood."""
        sinks, length = self._stream.sinks, self.rows.length(seq)
        layers = [self.rows.read(seq, layer, length) for layer in range(self._num_layers)]  # [Hkv, n, d] each
        if seq not in self._sinks:
            self._sinks[seq] = [k[:, :sinks].clone() for k, _ in layers]
        self._dropped[seq] += count
        self.num_dropped += count
        moved = []
        for (k, v), unmoved in zip(layers, self._sinks[seq], strict=True):
            turned = self._rope.further(unmoved.transpose(0, 1), self._dropped[seq]).transpose(0, 1)
            kept = torch.cat([v[:, :sinks], v[:, sinks + count :]], 1)
            moved.append((torch.cat([turned, k[:, sinks + count :]], 1), kept))
        self.rows.truncate(seq, 0)
        self.rows.reserve(seq, length - count)
        for layer, (k, v) in enumerate(moved):
            self.rows.write(seq, layer, 0, k.transpose(0, 1), v.transpose(0, 1))
        self.rows.commit(seq, range(length - count))
