"""Attention contexts: a layer passes its new queries, keys and values, and the context adds those of the past.

`CausalContext`: whole sequences at once, no cache, differentiable (training, full recompute).
`CachedContext` (`nn/cached.py`): ragged rows of several sequences over a key/value cache, which keeps the new rows as
tentative ones.
`WatchedContext`: any of them, for who wants to know what the queries were.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from outdraft.kernels.decoder.rows import Span
from outdraft.nn.fold import Step, empty_state, fold, fold_tree
from outdraft.nn.linear import RowRange
from outdraft.nn.scores import attention


class AttentionContext(Protocol):
    """Attention of one pass's flat rows.

    `CausalContext`, `CachedContext`, `BranchContext`, and a `WatchedContext` over one of them, also take `sinks` [H], a
    score for each head that no key has.
    """

    @property
    def bulk(self) -> Sequence[RowRange]:
        """Row ranges that are computed in one piece: prompt chunks, training batches."""

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, window: int | None, scale: float, cap: float | None = None
    ) -> Tensor:
        """q [N, H, d], k and v [N, Hkv, d], rotary applied -> [N, H * d].

        window: how many keys a row sees, itself included. cap: bounds the scores softly (`nn/scores.py`).
        """

    def spans(self) -> Sequence[Span] | None:
        """The same rows and what they see, for kernels that run all layers at once; None: ask layer by layer."""


class CausalContext:
    """`batch` sequences of `length` rows each, batch-major; every row sees its own sequence up to itself."""

    def __init__(self, batch: int, length: int) -> None:
        self.batch = batch
        self.length = length
        self.bulk: Sequence[RowRange] = ((0, batch * length),)
        self._masks: dict[int, Tensor] = {}  # window -> [T, T]

    def attend(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        window: int | None,
        scale: float,
        cap: float | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """One causal attention over the batch."""
        shape = (self.batch, self.length, -1, q.shape[-1])
        q, k, v = (x.reshape(shape).transpose(1, 2) for x in (q, k, v))  # [B, H, T, d]
        sinks = None if sinks is None else sinks[:, None]
        if window is None or window >= self.length:
            out = attention(q, k, v, is_causal=True, scale=scale, cap=cap, sinks=sinks)
        else:
            mask = self._window_mask(window, q.device)
            out = attention(q, k, v, mask=mask, scale=scale, cap=cap, sinks=sinks)
        return out.transpose(1, 2).flatten(2).flatten(0, 1)  # [B * T, H * d]

    def fold(self, layer: int, step: Step, inputs: Sequence[Tensor], shape: tuple[int, ...]) -> Tensor:
        """Each sequence from the empty state."""
        empty, chain = empty_state(shape, inputs[0]), range(-1, self.length - 1)
        starts = range(0, self.batch * self.length, self.length)
        each = [fold_tree(step, inputs, range(at, at + self.length), chain, empty, self.length)[0] for at in starts]
        return torch.stack([row for rows in each for row in rows])

    def spans(self) -> None:
        """There is no cache to run over."""

    def _window_mask(self, window: int, device: torch.device) -> Tensor:
        if window not in self._masks:
            row = torch.arange(self.length, device=device)
            back = row[:, None] - row[None, :]
            self._masks[window] = (back >= 0) & (back < window)
        return self._masks[window]


class WatchedContext:
    """Another context, whose queries are kept: layer -> [N, H, d], rotary applied (native kernels: float32)."""

    def __init__(self, watched: AttentionContext) -> None:
        self._watched = watched
        self.bulk = watched.bulk
        self.queries: dict[int, Tensor] = {}

    def attend(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        window: int | None,
        scale: float,
        cap: float | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """The other's, which must take `sinks` where there are any."""
        self.queries[layer] = q
        told: dict[str, Any] = {} if sinks is None else {"sinks": sinks}
        return self._watched.attend(layer, q, k, v, window=window, scale=scale, cap=cap, **told)

    def fold(self, layer: int, step: Step, inputs: Sequence[Tensor], shape: tuple[int, ...]) -> Tensor:
        """The other's: a recurrent layer has no queries to be kept."""
        return fold(self._watched, layer, step, inputs, shape)

    def spans(self) -> Sequence[Span] | None:
        """The other's; who runs over them fills `queries`."""
        return self._watched.spans()
