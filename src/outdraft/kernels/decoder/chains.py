"""Chains of guesses by one native call: from each span's last row on, every token is the next one's input."""

import ctypes
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.kernels.declared import CDistribution, CGuessChain
from outdraft.kernels.decoder.distributions import Warp
from outdraft.kernels.decoder.guesser import Guesser, GuessRows
from outdraft.kernels.decoder.rows import ints
from outdraft.kernels.library import check, pointer


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


def guess_chains(
    guesser: Guesser,
    rows: GuessRows,
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
            distribution = made[i] = torch.empty(depths[i] + 1, guesser.vocab)
            distribution[-1] = 0  # the last node has no children
            q[place] = distribution.data_ptr()
    left = torch.empty(count, stride, guesser.width) if states else None
    described = guesser.describe(rows, order)
    least = None if cutoffs is None else (ctypes.c_float * (2 * count))(*[each for i in order for each in cutoffs[i]])
    sure = None if cutoffs is None else (ctypes.c_float * (count * stride))()
    made_steps = ctypes.c_int32()
    chain = CGuessChain(
        ints([depths[i] for i in order]),
        stride,
        feed_last,
        distributions,
        keys,
        found,
        q,
        pointer(left),
        least,
        sure,
        ctypes.pointer(made_steps),
    )
    check(guesser.native.od_guesser_chain(guesser.handle, ctypes.byref(described), ctypes.byref(chain)))
    back = sorted(range(count), key=lambda place: order[place])
    lengths = [min(depth, made_steps.value) for depth in depths]
    tokens = [found[place * stride : place * stride + lengths[i]] for i, place in enumerate(back)]
    surenesses = None if sure is None else [sure[place * stride :][: lengths[i]] for i, place in enumerate(back)]
    if left is not None and order != list(range(count)):
        left = left[back]
    return Chains(tokens=tokens, distributions=made, states=left, surenesses=surenesses)
