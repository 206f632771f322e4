"""Every emitted token against the distribution it should have been drawn from, recomputed by one plain pass over the
text.

    u = P(tokens more probable than x) + v P(x),   v uniform

is uniform and independent from token to token exactly if each x was drawn from its distribution (Rosenblatt, "Remarks
on a multivariate transformation", 1952, https://doi.org/10.1214/aoms/1177729394). Contexts of all kinds count together,
so a bias that spreads over many of them is found with few texts; a token that the distribution forbids (outside top-p,
say) is found at once. Only the first token of each round with a guess is counted: there a lossy rule shows, and whether
a token is such a one is known before it is drawn, so that choosing it bends nothing (choosing *accepted* ones would).
Two tests share the level: a chi-square over the bins of u sees any shape, the mean of u sees sooner what lossy rules
do, which is to favour likely tokens. Data in: an engine and its results; data out: a `TokenDistribution`.
"""

import math
import random
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.core.draft import chain
from outdraft.core.events import Source
from outdraft.core.packing import pack
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.engine.callers.result import Result
from outdraft.engine.llm import LLM
from outdraft.engine.requests.spelled import spell_settings
from outdraft.options.params import SamplingParams
from outdraft.sampling.coins import verifier_coins
from outdraft.sampling.draft_coins import draft_coins
from outdraft.sampling.warp import tree_paths, warp_nodes
from outdraft.testing.statistics import chi_square_tail, detectable_shift

BINS = 10
FORBIDDEN = 1e-9  # a distribution's rounding may leave so much where there should be nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDistribution:
    """How well the tokens fit."""

    num_tokens: int  # first of a round with a guess
    forbidden: int  # of all tokens: those without probability
    p_value: float

    def smallest_shift(self, *, alpha: float, power: float) -> float:
        """Total variation of u from uniform that would be found (one sample: the other is infinitely large)."""
        return detectable_shift((self.num_tokens, 10**12), BINS - 1, alpha=alpha / 2, power=power)


def judge_tokens(
    plain: LLM, results: Seq[Result], params: SamplingParams, *, negative: tuple[int, ...] | None = None, seed: int = 0
) -> TokenDistribution:
    """Judge all tokens of `results`, which were sampled under `params` by whatever means. `negative`: their negative
    prompt, if they were guided by one."""
    rng = random.Random(seed)
    counts, forbidden, off = [0] * BINS, 0, 0.0
    for result in results:
        distributions = text_distributions(plain, result.prompt_token_ids, result.token_ids, params, negative)
        tokens = torch.tensor(result.token_ids, device=distributions.device)[:, None]
        own = distributions.gather(1, tokens)  # [L, 1]
        ids = torch.arange(distributions.shape[1], device=distributions.device)  # of equally probable ones, the first
        before = (distributions > own) | ((distributions == own) & (ids < tokens))
        above = torch.where(before, distributions, 0.0).sum(-1)  # [L]
        forbidden += int((own < FORBIDDEN).sum())
        for position in guessed_positions(result.sources):
            u = float(above[position]) + rng.random() * float(own[position])
            counts[min(BINS - 1, int(u * BINS))] += 1
            off += u - 0.5
    total = max(1, sum(counts))
    shape = chi_square_tail(sum((n - total / BINS) ** 2 for n in counts) * BINS / total, BINS - 1)
    centre = math.erfc(abs(off) * math.sqrt(12 / total) / math.sqrt(2))  # u has variance 1 / 12
    p_value = 0.0 if forbidden else min(1.0, 2 * shape, 2 * centre)
    return TokenDistribution(num_tokens=sum(counts), forbidden=forbidden, p_value=p_value)


def guessed_positions(sources: Seq[Source]) -> list[int]:
    """Where rounds with a guess begin: a round is some accepted tokens and one that is not."""
    positions, start = [], 0
    for position, source in enumerate(sources):
        if source != Source.ACCEPTED:
            if source != Source.PLAIN:
                positions.append(start)
            start = position + 1
    cut = start < len(sources)  # the last round ends inside its accepted run
    return [*positions, start] if cut else positions


@torch.inference_mode()
def text_distributions(
    plain: LLM, prompt: Seq[int], text: Seq[int], params: SamplingParams, negative: tuple[int, ...] | None = None
) -> Tensor:
    """[L, V] in float64: the warped distribution before each of the L tokens of `text`, in one pass."""
    parts = plain.engine.parts
    target = parts.target if parts.guide is None or not params.guides else parts.guide(parts).target
    seq = Sequence(
        id=-1,
        request=Request(
            prompt_token_ids=tuple(prompt),
            params=spell_settings(params, plain.tokenizer, "the model"),
            negative_prompt_token_ids=negative,
        ),
        tokens=list(prompt),
        prompt_len=len(prompt),
        max_len=target.max_len,
        seed=0,
        coupled=False,
        eos_token_ids=plain.engine.eos_token_ids,
        coins=verifier_coins,
        draft_coins=draft_coins,
        prompt_ids=frozenset(prompt),
    )
    seq.num_cached = target.begin(seq)
    try:
        packed = pack([seq], [chain([seq.pending, *text[:-1]])], max_chunk=len(prompt))
        logits = target.forward(packed).logits
    finally:
        target.end(seq)
    tree = packed.trees[0]
    assert tree is not None
    distributions = warp_nodes(seq, logits, tree_paths(tree)).double()
    return distributions / distributions.sum(-1, keepdim=True)
