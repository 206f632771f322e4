"""Drafters that run ahead, without a seed: the whole loop's exact distribution, and how often what stands survives."""

from dataclasses import replace

import pytest
import torch
from drafters.test_ssd import Draws
from verify.distributions import rule

from outdraft.core.policy import Budget
from outdraft.decode.executor import Overlapped, Serial
from outdraft.decode.parts import Parts
from outdraft.decode.step import step
from outdraft.drafters import pearl, run_ahead
from outdraft.sampling.coins import verifier_coins
from outdraft.sampling.draft_coins import KeyedDraftCoins, draft_coins
from outdraft.testing.statistics import judge_counts
from outdraft.verify import block, rejection
from tests.helpers.enumerate_distribution import (
    BranchingCoins,
    BranchingDraftCoins,
    outcomes,
    target_distribution,
    total_variation,
)
from tests.helpers.fakes import ConstantPolicy, TableTarget
from tests.helpers.tables import Table, blend, context_index, one_sequence, random_table

MAKERS = {
    "pearl": pearl.over,
    "run_ahead": lambda inner: run_ahead.over(run_ahead.RunAheadOptions(piece=1, window=2), inner),
}


class Target(TableTarget):
    """A table of distributions."""

    def __init__(self, table: Table) -> None:
        super().__init__(vocab_size=table.vocab_size, order=table.order, max_len=1 << 20)
        self.table = table.rows.log().reshape(-1, *[table.vocab_size] * table.order)


def write(
    name,
    p,
    q,
    length,
    *,
    depth=1,
    coins=verifier_coins,
    guesses=draft_coins,
    seed=0,
    verifier="rejection",
    executor=None,
):
    """A text of `length` tokens behind token 0 by the one loop, and the drafter that was used."""
    target = Target(p)
    drafter = MAKERS[name](Draws(q, 1))
    parts = Parts(
        target=target,
        drafter=drafter,
        verifier=rule(verifier),
        policy=ConstantPolicy(Budget(depth=depth)),
        executor=executor or Serial(),
    )
    seq = replace(one_sequence([0], seed=seed), coins=coins, draft_coins=guesses)
    target.begin(seq)
    drafter.begin([seq])
    passes = 0
    while seq.num_output < length:
        step([seq], parts)
        passes += 1
    return seq.output[:length], drafter, passes


def enumerated(name, p, q, length, **options):
    """The exact distribution of the first `length` tokens, over all outcomes of every coin of several rounds."""
    found = torch.zeros([p.vocab_size] * length, dtype=torch.float64)

    def run(chance):
        made = write(
            name,
            p,
            q,
            length,
            coins=lambda seq: BranchingCoins(chance),
            guesses=lambda seq: BranchingDraftCoins(chance),
            **options,
        )
        return tuple(made[0])

    for mass, text in outcomes(run):
        found[text] += mass
    return found


@pytest.mark.parametrize("verifier", ["rejection", "block"])
@pytest.mark.parametrize("name", MAKERS)
def test_several_rounds_have_the_targets_distribution(name, verifier, monkeypatch):
    """After a miss, behind a whole block, and what stood behind a bonus token that was kept."""
    p, q = random_table(2, 1, 1), random_table(2, 1, 2)
    wanted = target_distribution(p, [0], 3)
    assert total_variation(enumerated(name, p, q, 3, verifier=verifier), wanted) < 1e-9
    for user in (rejection, block):
        monkeypatch.setattr(user, "draw_bonus", lambda case, node: case.continuation.token)
    assert total_variation(enumerated(name, p, q, 3, verifier=verifier), wanted) > 0.01, "kept always must not pass"


@pytest.mark.parametrize("name", MAKERS)
def test_whole_texts_have_the_targets_distribution(name):
    """Production's coins and its thread, many rounds: what one round spends, no other round may spend again."""
    p = random_table(5, 1, 1)
    q = blend(p, random_table(5, 1, 2), 0.5)
    counts = torch.zeros_like(p.rows)
    passes = survived = 0
    executor = Overlapped()
    for seed in range(400):  # on a busy machine few guesses are ready in time
        if seed >= 10 and survived > 25:
            break
        text, drafter, own = write(name, p, q, 100, depth=3, seed=seed, executor=executor)
        passes, survived = passes + own, survived + drafter.num_survived
        for before, token in zip([0, *text], text, strict=False):
            counts[context_index([before], 1, 5), token] += 1
    found = judge_counts(counts, p.rows, passes)
    assert found.passes, found
    assert survived > 25


@pytest.mark.parametrize("name", MAKERS)
def test_what_stands_survives_as_often_as_the_distributions_overlap(name):
    """The most that is possible; two draws that know nothing of each other agree with sum p q."""
    p, q = random_table(20, 0, 1), random_table(20, 0, 2)
    overlap, by_chance = float(torch.minimum(p.rows, q.rows).sum()), float((p.rows * q.rows).sum())
    reached = survived = 0
    for seed in range(6):
        drafter = write(name, p, q, 150, seed=seed)[1]
        reached, survived = reached + drafter.num_reached, survived + drafter.num_survived
    assert reached > 300
    assert survived / reached == pytest.approx(overlap, abs=0.07) and overlap > by_chance + 0.3


@pytest.mark.parametrize("name", MAKERS)
def test_no_draw_of_a_text_asks_a_coin_that_another_has_asked(name, monkeypatch):
    """A rule that judges a chain as a whole has looked at tokens which are dropped and drafted again."""
    asked = []
    draw = KeyedDraftCoins.draw

    def noted(self, distribution, depth, ordinal, count=1):
        asked.append((self.seed, self.root, ordinal))
        return draw(self, distribution, depth, ordinal, count)

    monkeypatch.setattr(KeyedDraftCoins, "draw", noted)
    p = random_table(5, 1, 1)
    write(name, p, blend(p, random_table(5, 1, 2), 0.5), 60, depth=3, verifier="block")
    assert len(asked) > 50 and len(asked) == len(set(asked))
