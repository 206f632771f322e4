"""A network on the native kernels, in one call: a pass from ids to logits, or a chain of guesses
(`kernels.decoder.guesser`).

Data in: token ids, positions and the attention context of the rows; data out: states [M, D], logits [M, V], chains.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.core.skip import NO_SKIP, Skip
from outdraft.kernels.decoder.chains import Chains, Draw, guess_chains
from outdraft.kernels.decoder.entrance import ResidualBlock
from outdraft.kernels.decoder.guesser import Guesser, GuessRows
from outdraft.models.networks.native import NativeDecoder, spans_of
from outdraft.nn.context import AttentionContext
from outdraft.nn.rope import Rope, RopeTables


class NativeGuesser:
    """A guesser with the rotary tables that belong to it."""

    def __init__(self, guesser: Guesser, rope: Rope | RopeTables) -> None:
        self._guesser = guesser
        self._rope = rope
        self._tables = rope.table(1, torch.float32, torch.device("cpu"))

    def feed(
        self,
        tokens: Seq[int],
        positions: Seq[int],
        ctx: AttentionContext,
        wanted: Seq[int],
        *,
        features: Tensor | None = None,
        taps: Seq[Tensor] = (),
        skip: Skip = NO_SKIP,
        kept: Mapping[int, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """States [M, D] and logits [M, V] of the wanted rows; with an entrance, one of features and taps [N, D].

        kept: layer -> where the states after it go [N, D] float32.
        """
        return self._guesser.feed(self._rows(tokens, positions, ctx, 0, features, taps, skip, kept or {}), wanted)

    def chain(
        self,
        tokens: Seq[int],
        positions: Seq[int],
        ctx: AttentionContext,
        depths: Seq[int],
        draws: Seq[Draw | None],
        *,
        taps: Seq[Tensor] = (),
        skip: Skip = NO_SKIP,
        feed_last: bool = False,
        states: bool = False,
        cutoffs: Seq[tuple[float, float]] | None = None,
    ) -> Chains:
        """`guess_chains`: the cache must have room for the rows of every step behind those of the pass."""
        rows = self._rows(tokens, positions, ctx, max(depths), None, taps, skip, {})
        return guess_chains(self._guesser, rows, depths, draws, feed_last=feed_last, states=states, cutoffs=cutoffs)

    def _rows(
        self,
        tokens: Seq[int],
        positions: Seq[int],
        ctx: AttentionContext,
        steps: int,
        features: Tensor | None,
        taps: Seq[Tensor],
        skip: Skip,
        kept: Mapping[int, Tensor],
    ) -> GuessRows:
        if (length := max(positions) + steps + 1) > self._tables[0].shape[-3]:
            self._tables = self._rope.table(length, torch.float32, torch.device("cpu"))
        (cos, sin), spans = self._tables, ctx.spans()
        return GuessRows(
            tokens=tokens,
            positions=positions,
            spans=spans_of(ctx) if spans is None else spans,
            cos=cos,
            sin=sin,
            features=features.float().contiguous() if features is not None else None,
            taps=[tap.float().contiguous() for tap in taps] if taps else (),
            skip=skip,
            kept=kept,
        )


def guess_with(
    decoder: NativeDecoder,
    *,
    num_layers: int | None = None,
    exit: ResidualBlock | None = None,
    eps: float = 0.0,
    ids: Tensor | None = None,
    num_ids: int = 0,
) -> NativeGuesser:
    """The decoder in one call, or what its first `num_layers` layers (all) would guess; `eps`: of the exit's norm.

    ids, num_ids: which of so many tokens the head's outputs are, as for `Guesser`.
    """
    layers = decoder.config.num_layers if num_layers is None else num_layers
    guesser = Guesser(
        decoder.stack,
        decoder.stack,
        decoder.table,
        num_layers=layers,
        exit=exit,
        eps=eps,
        embedding_scale=decoder.embedding_scale,
        ids=ids,
        num_ids=num_ids,
    )
    return NativeGuesser(guesser, decoder.rope)
