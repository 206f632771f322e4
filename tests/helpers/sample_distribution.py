"""The sampled distribution of whole texts: many rounds with the production coins, compared with the target's table.

What one enumerated round cannot see is whether the coins of different rounds, positions and purposes are independent.
Texts are written token by token through drafter, target and rule; every token is counted under its context.

In: a verifier, a target `Table`, a drafter function. Out: `SampledDistribution`, whose `passes` is the verdict.
"""

from collections.abc import Callable

import torch

from outdraft.core.coins import Coins, DraftCoins
from outdraft.core.sequence import Sequence
from outdraft.core.verifier import Verifier
from outdraft.sampling.coins import verifier_coins
from outdraft.sampling.draft_coins import draft_coins
from outdraft.testing.statistics import SampledDistribution, judge_counts
from tests.helpers.tables import DraftFunction, Table, context_index, one_sequence, score


def sample_distribution(
    verifier: Verifier,
    target: Table,
    propose: DraftFunction,
    *,
    num_tokens: int = 20_000,
    length: int = 100,
    seed: int = 0,
    coins: Callable[[Sequence], Coins] = verifier_coins,
    guesses: Callable[[Sequence], DraftCoins] = draft_coins,
) -> SampledDistribution:
    """Write `num_tokens` tokens as texts of `length`, and judge them. `coins`, `guesses`: to plant faults."""
    counts = torch.zeros_like(target.rows)
    num_rounds = 0
    for text in range(num_tokens // length):
        seq = one_sequence([0] * max(1, target.order), seed=seed + text)
        seq.coupled = verifier.couples(seq.request)
        while seq.num_output < length:
            draft = propose(seq.tokens, guesses(seq))
            packed, p = score(target, [seq], [draft])
            (verdict,) = verifier(packed, p, [coins(seq)])
            for token in [*draft.tokens[list(verdict.path)].tolist(), verdict.token][: length - seq.num_output]:
                counts[context_index(seq.tokens, target.order, target.vocab_size), token] += 1
                seq.extend(token)
            seq.num_cached = len(seq.tokens) - 1
            num_rounds += 1
    return judge_counts(counts, target.rows, num_rounds)
