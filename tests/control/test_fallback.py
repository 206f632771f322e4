"""Falling back, guess by guess: with scripted rounds and scripted drafters every plan and every count is known."""

import pytest
from control.world import World, drive, judged, sequence

from outdraft.control.fallback import FallbackOptions, FallbackPolicy, Fallbacks, build
from outdraft.core.events import StepEvent, StepTimes
from outdraft.core.policy import Arm, Budget
from outdraft.core.request import Request
from outdraft.decode import reference
from outdraft.decode.parts import Parts
from outdraft.engine.loop import Engine
from outdraft.options.errors import ConfigError
from outdraft.options.params import SamplingParams
from outdraft.testing.subject import run
from tests.helpers.fakes import AuditedTarget, ReferenceRule, TableTarget
from tests.helpers.scripted import ScriptedDrafter

SUNK = [4, 4, 2, 2, 1, 1, 0, 0, 0, 0, 0]  # all guesses are lost, until 5 tokens have been decoded plainly


def policy(**options):
    return build(FallbackOptions(**{"num_speculative_tokens": 4, "rounds": 2, "tokens": 5, **options}), ())


def depths(policy, accepted, seq):
    """What is planned before each round; so many tokens are accepted of its guess."""
    found = []
    for count in accepted:
        (budget,) = policy.plan([seq])
        found.append(budget.depth)
        policy.update([judged(seq, budget.depth, min(count, budget.depth), StepTimes())])
    return found


def test_lost_guesses_lead_down_and_one_on_trial_leads_back():
    sinking = policy()
    assert depths(sinking, [0] * 24, sequence()) == [*SUNK, 1, *[0] * 5, 1, *[0] * 5, 1]
    assert sinking.counts == Fallbacks(falls=6, plain_tokens=15, recoveries=0)


def test_kept_guesses_lead_up_step_by_step():
    fallen, seq = policy(), sequence()
    assert depths(fallen, [0] * 11, seq) == SUNK
    assert depths(fallen, [9] * 7, seq) == [1, 1, 2, 2, 4, 4, 4]
    assert fallen.counts == Fallbacks(falls=3, plain_tokens=5, recoveries=1)
    assert depths(fallen, [0, 0, 0], seq) == [4, 4, 2], "what was lost before it recovered is forgotten"


def test_rows_of_lost_and_of_kept_guesses_end_each_other():
    assert depths(policy(), [0, 1, 0, 1, 0, 0, 0], sequence()) == [4, 4, 4, 4, 4, 4, 2]
    assert depths(policy(), [0, 0, 9, 0, 9, 9, 9], sequence()) == [4, 4, 2, 2, 2, 2, 4]


@pytest.mark.parametrize(("share", "then"), [(0.75, 2), (0.76, 4)])
def test_a_share_says_what_is_lost(share, then):
    assert depths(policy(share=share), [1, 1, 1], sequence()) == [4, 4, then]


def test_the_last_step_stays_where_it_is_not_plain_decoding():
    assert depths(policy(depths=(2,), rounds=1), [0, 0, 0, 0, 9, 9, 0], sequence()) == [4, 2, 2, 2, 2, 2, 4]


def test_from_plain_decoding_alone_the_inner_depth_is_tried():
    assert depths(policy(depths=(0,), rounds=1, recover=1), [0] * 7 + [9, 0, 0], sequence()) == [
        *(4, 0, 0, 0, 0, 0, 4),
        *(0, 0, 0),
    ]


def test_without_depths_nothing_falls_back():
    never = policy(depths=())
    assert depths(never, [0] * 9, sequence()) == [4] * 9 and never.counts == Fallbacks()


class Scripted:
    """An inner policy: its depths, and what it hears."""

    def __init__(self, *depths):
        self.depths, self.heard, self.ended = list(depths), [], []

    def plan(self, seqs):
        return [Budget(depth=self.depths.pop(0), arm=1, confidence=0.5) for _ in seqs]

    def update(self, events):
        self.heard += events

    def end(self, seqs):
        self.ended += seqs

    def spare(self, seq, crowd):
        return frozenset({crowd})


def test_the_inner_policy_is_cut_and_hears_everything():
    inner, seq = Scripted(3, 4, 1, 5, 0, 5), sequence()
    around = FallbackPolicy(FallbackOptions(rounds=1, depths=(2, 0), tokens=3, num_speculative_tokens=4), inner)
    assert depths(around, [9, 0, 0, 0, 0, 0], seq) == [3, 4, 1, 0, 0, 0]
    assert around.counts.plain_tokens == 2, "one of the three was the inner policy's own wish"
    assert [event.draft_depth for event in inner.heard] == [3, 4, 1, 0, 0, 0]
    around._stands.clear()
    inner.depths = [9]
    assert around.plan([seq]) == [Budget(depth=4, arm=1, confidence=0.5)], "only the depth is cut"
    around.end([seq])
    assert inner.ended == [seq] and not around._stands
    assert around.spare(seq, 7) == {7} and policy().spare(seq, 7) == frozenset()


def test_rounds_without_a_guess_count_where_they_are_meant():
    """A drafter that has nothing to offer, and chunks of a prompt, change nothing."""
    fallen, seq = policy(), sequence()
    depths(fallen, [0, 0], seq)
    for _ in range(9):
        fallen.plan([seq])
        fallen.update([StepEvent(seq_id=seq.id, tokens=(1,))])
    assert depths(fallen, [0] * 6, seq) == [2, 2, 1, 1, 0, 0] and fallen.counts.plain_tokens == 2
    fallen, seq = policy(), sequence()
    depths(fallen, [0] * 8, seq)
    fallen.plan([seq])
    fallen.update([StepEvent(seq_id=seq.id, num_certain=8), StepEvent(seq_id=99, tokens=(1,))])
    assert depths(fallen, [0] * 4, seq) == [0, 0, 0, 1]


def test_lengths_follow_the_history_where_nothing_fails():
    options = {"num_speculative_tokens": 8, "inner": {"name": "history", "least": 3, "window": 4, "pause": 0}}
    moving, seq = policy(**options), sequence()
    assert depths(moving, [9] * 7, seq) == [5, 5, 5, 5, 6, 7, 8]
    assert depths(moving, [0] * 6, seq) == [8, 8, 2, 2, 1, 1]
    assert depths(moving, [0] * 5 + [9] * 5, seq)[-6:] == [0, 1, 1, 2, 2, 4], "by the history 4, after lost guesses"


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"rounds": 0}, "rounds"),
        ({"recover": 0}, "recover"),
        ({"tokens": 0}, "tokens"),
        ({"share": 0}, "share"),
        ({"share": 1.1}, "share"),
        ({"depths": (1, 2)}, "each must be less"),
        ({"depths": (1, 1)}, "each must be less"),
        ({"depths": (1, -1)}, "depths"),
        ({"inner": "histroy"}, "did you mean 'history'"),
        ({"inner": {"least": 3}}, "names no policy"),
        ({"inner": {"name": "history", "leest": 3}}, "did you mean 'least'"),
    ],
)
def test_bad_options(options, wrong):
    with pytest.raises(ConfigError, match=wrong):
        FallbackOptions(**options)


def test_the_inner_policy_guesses_at_most_as_much():
    assert FallbackOptions(num_speculative_tokens=6).read_inner()[1].num_speculative_tokens == 6
    less = FallbackOptions(inner={"name": "heuristic", "num_speculative_tokens": 3})
    assert less.read_inner()[1].num_speculative_tokens == 3
    several = build(FallbackOptions(inner="routing"), [Arm(name="a"), Arm(name="b")])
    asked = drive(several, World([0.9, 0.9], [0.1, 0.1]), 40)
    assert {budget.arm for (budget,) in asked.budgets} == {0, 1}


TABLE = TableTarget(vocab_size=11, seed=5)
RIGHT = {"liar": (0,), "oracle": (4,), "alternating": (0, 0, 4, 4)}  # tokens of each guess that are right
TOKENS = {"liar": 22, "oracle": 24, "alternating": 17}
PLANS = {
    "liar": [*SUNK, 1, *[0] * 5, 1, *[0] * 4],
    "oracle": [4, 4, 4, 4, 3],  # the last token is the target's own
    "alternating": [4, 4, 2, 2, 4, 4, 2, 2, 0],
}
COUNTS = {  # the last token of a text would have had no guess anyhow
    "liar": Fallbacks(falls=5, plain_tokens=13),
    "oracle": Fallbacks(),
    "alternating": Fallbacks(falls=2, recoveries=2),
}


class Each(ScriptedDrafter):
    """A script for each text, by its first token."""

    def _guess(self, seq, budget):
        right = list(RIGHT.values())[seq.tokens[0]]
        self.num_right = lambda number: right[number % len(right)]
        return super()._guess(seq, budget)


def engine_with(falling):
    parts = Parts(
        target=AuditedTarget(TABLE), drafter=Each(TABLE.next_logits, None), verifier=ReferenceRule(), policy=falling
    )
    return Engine(parts)


def run_scripts(*scripts):
    """Texts in one batch, each plain decoding's: their plans, and what was counted."""
    falling, plans = policy(), {}
    plan = falling.plan

    def watched(seqs):
        budgets = plan(seqs)
        for seq, budget in zip(seqs, budgets, strict=True):
            plans.setdefault(seq.id, []).append(budget.depth)
        return budgets

    falling.plan = watched
    requests = [
        Request(
            prompt_token_ids=(list(RIGHT).index(script),),
            params=SamplingParams(max_tokens=TOKENS[script], temperature=1.0, seed=3),
        )
        for script in scripts
    ]
    outcomes = run(engine_with(falling), requests)
    for request, outcome in zip(requests, outcomes, strict=True):
        assert outcome.seq.output == reference.decode(TABLE.next_logits, engine_with(policy()).add(request))
    assert not falling._stands
    return [plans[outcome.seq.id] for outcome in outcomes], falling.counts


@pytest.mark.parametrize("script", PLANS)
def test_plans_of_scripted_drafters(script):
    assert run_scripts(script) == ([PLANS[script]], COUNTS[script])


def test_a_batch_changes_neither_plan_nor_text():
    plans, counts = run_scripts(*PLANS)
    assert plans == list(PLANS.values())
    assert counts == Fallbacks(falls=7, plain_tokens=13, recoveries=2)
