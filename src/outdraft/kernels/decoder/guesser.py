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
from outdraft.kernels.declared import CFeed, CLinear
from outdraft.kernels.decoder.blocks import BlockWeight
from outdraft.kernels.decoder.entrance import Entrance, ResidualBlock
from outdraft.kernels.decoder.rows import Span, describe, ints, places, table_size
from outdraft.kernels.decoder.stack import Stack
from outdraft.kernels.library import check, pointer
from outdraft.options.errors import CapabilityError


@dataclass(frozen=True, slots=True, kw_only=True)
class GuessRows:
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
        embedding: Tensor | BlockWeight | Stack,
        *,
        num_layers: int,
        norm: Tensor | None = None,
        embedding_scale: float = 1.0,
        eps: float = 0.0,
        bare_head: bool = False,
        ids: Tensor | None = None,
        num_ids: int = 0,
        entrance: Entrance | None = None,
        exit: ResidualBlock | None = None,
    ) -> None:
        """embedding [V, D] bf16, blocks of one part or a tied head's stack, times `embedding_scale`; ids [V']."""
        self.native, self._num_layers = body.native, num_layers
        self._kept = (body, head, embedding)  # the library points at them
        self._num_ids = embedding.shape[0] if isinstance(embedding, Tensor) else embedding.num_out
        self.width, self.vocab = body.shape.hidden, head.shape.vocab if ids is None else num_ids
        self.handle = check(
            self.native.od_guesser_new(
                body.handle,
                head.handle,
                num_layers,
                embedding.data_ptr() if isinstance(embedding, Tensor) else None,
                embedding_scale,
                pointer(norm),
                eps,
                bare_head,
            )
        )
        if not isinstance(embedding, Tensor):
            table = (None, embedding.handle) if isinstance(embedding, Stack) else (embedding.described_parts(), None)
            check(self.native.od_guesser_set_table(self.handle, *table))
        if ids is not None:
            known = ids.int().contiguous()
            check(self.native.od_guesser_set_ids(self.handle, known.data_ptr(), len(known), num_ids))
        if entrance is not None:
            check(self.native.od_guesser_set_entrance(self.handle, ctypes.byref(entrance.describe())))
        if exit is not None:
            matrices = (CLinear * 2)(exit.up.describe(), exit.down.describe())
            check(self.native.od_guesser_set_exit(self.handle, matrices, pointer(exit.norm)))

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.native.od_guesser_free(self.handle)

    def feed(self, rows: GuessRows, wanted: Seq[int], *, scored: bool = True) -> tuple[Tensor, Tensor]:
        """States [M, D] and logits [M, V] (empty unless `scored`) of the wanted rows; `rows.kept` is filled."""
        count = len(wanted)
        states = torch.empty(count, self.width)
        logits = torch.empty(count if scored else 0, self.vocab)
        described = self.describe(rows)
        described.wanted, described.num_wanted = ints(wanted), count
        described.states, described.logits = states.data_ptr(), logits.data_ptr() if scored else None
        check(self.native.od_guesser_feed(self.handle, ctypes.byref(described)))
        return states, logits

    def describe(self, rows: GuessRows, order: Seq[int] | None = None) -> CFeed:
        """For the C interface; `order`: of the spans. Raises `CapabilityError` for an id without an embedding."""
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
            len(rows.tokens),
            len(spans),
            ints(rows.tokens),
            ints(rows.positions),
            describe(spans),
            rows.cos.data_ptr(),
            rows.sin.data_ptr(),
            table_size(rows.cos),
            None if rows.features is None else rows.features.data_ptr(),
            taps,
            skipped=None if rows.skip is NO_SKIP else rows.skip.flags(layers),
            kept=places(rows.kept, layers) if rows.kept else None,
        )
