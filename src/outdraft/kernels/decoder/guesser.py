"""What stands between a token and the logits of the next one: one native call a pass, or a chain of guesses.

    token -> [entrance] -> layers -> state -> [exit] -> norm -> head -> logits -> next token

A target and a draft model have neither entrance nor exit; a network on another model's features has an entrance, and
that model's head or one of its own; a model that leaves its own layers early has an exit. Data in: rows and where they
stand in their caches; data out: states, logits, chosen tokens and the distributions that they were drawn from.
"""

import ctypes
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import torch
from torch import Tensor

from outdraft.core.skip import NO_SKIP, Skip
from outdraft.kernels.declared import CDistribution, CFeed, CGuessChain, CLinear
from outdraft.kernels.decoder.distributions import Warp
from outdraft.kernels.decoder.entrance import Entrance, Residual
from outdraft.kernels.decoder.rows import Span, describe, ints, places, pointer, table_size
from outdraft.kernels.decoder.stack import Stack
from outdraft.kernels.library import check, require_library
from outdraft.options.errors import CapabilityError


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of one pass, span after span."""

    tokens: Seq[int]
    positions: Seq[int]
    spans: Seq[Span]
    cos: Tensor  # [T, rotary] or [kinds, T, 1, rotary] float32, of all positions that may come
    sin: Tensor  # the same
    features: Tensor | None = None  # [N, D] float32, with an entrance only
    taps: Seq[Tensor] = ()  # [N, D] float32 each: the features' origin, where there are none
    skip: Skip = NO_SKIP  # what the layers leave out, in every step
    kept: Mapping[int, Tensor] = field(default_factory=dict)  # layer -> [N, D] float32: where its states go


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """A sequence's way to choose: `keys` of its noise, one a step (`sampling.noise`), and how the distribution is
    warped."""

    keys: list[int]
    warp: Warp


@dataclass(frozen=True, slots=True, kw_only=True)
class Chains:
    """What came of one chain for each sequence, in the order given."""

    tokens: list[list[int]]  # -1 from a row on whose logits are not finite
    # [depth + 1, V] that each token was drawn from, the last row 0; None: the best tokens.
    distributions: list[Tensor | None]
    states: Tensor | None  # [B, steps, D] after the layers, of each row that a token was chosen from (and of the last)
    surenesses: list[list[float]] | None = None  # each token's probability, where cutoffs were given


class Guesser:
    """Body and head may be one stack.

    norm: in place of the head's own; None: that, or with `bare_head` none.
    ids: which of `num_ids` tokens the head's outputs are, each once; -1: none; None: all, in order. The others are
    never guessed.
    """

    def __init__(
        self,
        body: Stack,
        head: Stack,
        embedding: Tensor,
        *,
        num_layers: int,
        norm: Tensor | None = None,
        embedding_scale: float = 1.0,
        eps: float = 0.0,
        bare_head: bool = False,
        ids: Tensor | None = None,
        num_ids: int = 0,
        entrance: Entrance | None = None,
        exit: Residual | None = None,
    ) -> None:
        """embedding [V, D] bf16, multiplied by `embedding_scale`; ids [V']."""
        self._native = require_library()
        self._kept = (body, head, embedding)  # the library points at them
        self._num_layers = num_layers
        self._num_ids = embedding.shape[0]
        self._width, self._vocab = body.shape.hidden, head.shape.vocab if ids is None else num_ids
        self._handle = check(
            self._native.od_guesser_new(
                body.handle,
                head.handle,
                num_layers,
                embedding.data_ptr(),
                embedding_scale,
                pointer(norm),
                eps,
                bare_head,
            )
        )
        if ids is not None:
            known = ids.int().contiguous()
            check(self._native.od_guesser_set_ids(self._handle, known.data_ptr(), len(known), num_ids))
        if entrance is not None:
            check(self._native.od_guesser_set_entrance(self._handle, ctypes.byref(entrance.describe())))
        if exit is not None:
            matrices = (CLinear * 2)(exit.up.describe(), exit.down.describe())
            check(self._native.od_guesser_set_exit(self._handle, matrices, pointer(exit.norm)))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._native.od_guesser_free(self._handle)

    def feed(self, rows: Rows, wanted: Seq[int], *, scored: bool = True) -> tuple[Tensor, Tensor]:
        """States [M, D] and logits [M, V] (empty unless `scored`) of the wanted rows; `rows.kept` is filled."""
        count = len(wanted)
        states = torch.empty(count, self._width)
        logits = torch.empty(count if scored else 0, self._vocab)
        described = self._describe(rows)
        described.wanted, described.num_wanted = ints(wanted), count
        described.states, described.logits = states.data_ptr(), logits.data_ptr() if scored else None
        check(self._native.od_guesser_feed(self._handle, ctypes.byref(described)))
        return states, logits

    def chain(
        self,
        rows: Rows,
        depths: Seq[int],
        draws: Seq[Draw | None],
        *,
        feed_last: bool = False,
        states: bool = False,
        cutoffs: Seq[tuple[float, float]] | None = None,
    ) -> Chains:
        """From each span's last row on: `depths[i]` tokens (at least 1), each the next one's input.

        rows: spans without paths, with room in the cache for a row a step behind them. draws: None for the best token.
        feed_last: the last token goes through the layers too. states: return them. cutoffs: of each chain the least
        probability of a token and of a path; where all chains have fallen below, they end, the last token included.
        """
        count, steps = len(depths), max(depths)
        order = sorted(range(count), key=lambda i: -depths[i])
        stride = steps + feed_last
        found = (ctypes.c_int32 * (count * stride))()
        keys = (ctypes.c_uint64 * (count * stride))()
        distributions, q = (CDistribution * count)(), (ctypes.c_void_p * count)()
        made: list[Tensor | None] = [None] * count
        for place, i in enumerate(order):
            if (draw := draws[i]) is not None:
                keys[place * stride : place * stride + depths[i]] = [*draw.keys[: depths[i]]]
                distributions[place] = draw.warp.describe()
                distribution = made[i] = torch.empty(depths[i] + 1, self._vocab)
                distribution[-1] = 0  # the last node has no children
                q[place] = distribution.data_ptr()
        left = torch.empty(count, stride, self._width) if states else None
        described = self._describe(rows, order)
        least = (
            None if cutoffs is None else (ctypes.c_float * (2 * count))(*[each for i in order for each in cutoffs[i]])
        )
        sure = None if cutoffs is None else (ctypes.c_float * (count * stride))()
        made_steps = ctypes.c_int32()
        chain = CGuessChain(
            ints([depths[i] for i in order]), stride, feed_last, distributions, keys, found, q,
            pointer(left), least, sure, ctypes.pointer(made_steps),
        )  # fmt: skip
        check(self._native.od_guesser_chain(self._handle, ctypes.byref(described), ctypes.byref(chain)))
        back = sorted(range(count), key=lambda place: order[place])
        lengths = [min(depth, made_steps.value) for depth in depths]
        tokens = [found[place * stride : place * stride + lengths[i]] for i, place in enumerate(back)]
        surenesses = None if sure is None else [sure[place * stride :][: lengths[i]] for i, place in enumerate(back)]
        if left is not None and order != list(range(count)):
            left = left[back]
        return Chains(tokens=tokens, distributions=made, states=left, surenesses=surenesses)

    def _describe(self, rows: Rows, order: Seq[int] | None = None) -> CFeed:
        if rows.tokens and not 0 <= min(rows.tokens) <= max(rows.tokens) < self._num_ids:
            wrong = next(token for token in rows.tokens if not 0 <= token < self._num_ids)
            raise CapabilityError(
                f"token id {wrong} has no embedding: this network has embeddings for the ids below "
                f"{self._num_ids} only; use it with the tokenizer that it was made for"
            )
        spans = rows.spans if order is None else [rows.spans[i] for i in order]
        taps = (ctypes.c_void_p * len(rows.taps))(*[tap.data_ptr() for tap in rows.taps]) if rows.taps else None
        layers = range(self._num_layers)
        return CFeed(
            len(rows.tokens), len(spans), ints(rows.tokens), ints(rows.positions), describe(spans),
            rows.cos.data_ptr(), rows.sin.data_ptr(), table_size(rows.cos), pointer(rows.features),
            taps, skipped=None if rows.skip is NO_SKIP else rows.skip.flags(layers),
            kept=places(rows.kept, layers) if rows.kept else None,
        )  # fmt: skip
