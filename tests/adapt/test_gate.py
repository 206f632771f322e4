"""The gate passes falsely with at most alpha, however often it is looked at, and soon where the new draft is better."""

from math import ceil, inf, log, log1p, nan, pi, sqrt

import numpy as np
import pytest
from adapt.traffic import decide, equal_drafts, requests, share_passed, skewed

from outdraft.adapt import gate as module
from outdraft.adapt.gate import Gate, GateOptions
from outdraft.adapt.wealth import Wealth
from outdraft.options.errors import ConfigError, RequestError

TRIES = 2000
FIRST = 0.05 * 6 / pi**2  # the level of a first candidate


def gate(depth: int = 4, tries: int = 1, **options: float) -> Gate:
    """One that cuts nothing, where the options do not say so."""
    return Gate(GateOptions(**{"cut": float(max(depth, 1)) if depth == depth else 1.0, **options}), depth, tries)


def allowed(level: float = FIRST, tries: int = TRIES) -> float:
    return level + 3 * sqrt(level * (1 - level) / tries)


class RepeatedTTest:
    """The faulty gate that is in use: a t-test of that level, repeated until it says yes."""

    def __init__(self) -> None:
        self.count, self.total, self.squares = 0, 0.0, 0.0

    def add(self, domain: str, old: float, new: float) -> None:
        self.count += 1
        self.total += new - old
        self.squares += (new - old) ** 2

    @property
    def outcome(self) -> str:
        if self.count < 10:
            return "undecided"
        variance = (self.squares - self.total**2 / self.count) / (self.count - 1)
        return "passed" if self.total > 1.88 * sqrt(variance * self.count) else "undecided"  # P(z > 1.88) = 0.03


def test_drafts_of_equal_length_pass_seldom(monkeypatch):
    """A margin of 2 leaves the first claim alone; two faulty gates do pass."""
    assert share_passed(lambda: gate(margin=2.0), equal_drafts(np.random.default_rng(1), TRIES, 80)) <= allowed()
    some = list(equal_drafts(np.random.default_rng(2), 300, 80))
    assert share_passed(RepeatedTTest, iter(some)) > 2 * allowed(tries=300)
    honest = Wealth.add
    monkeypatch.setattr(Wealth, "add", lambda self, x: honest(self, max(x, 0.0)))  # bets on what it has seen already
    assert share_passed(lambda: gate(margin=2.0), iter(some)) > 2 * allowed(tries=300)


def test_skewed_differences_pass_seldom_and_use_most_of_the_level():
    tries = [requests(one, 3) for one in skewed(np.random.default_rng(3), TRIES, 45, 3)]
    share = share_passed(lambda: gate(depth=3, margin=2.0), iter(tries))
    assert FIRST / 2 < share <= allowed()


def test_heavy_tails_pass_seldom():
    rng = np.random.default_rng(4)
    tries = (requests(np.clip(0.3 * rng.standard_t(1.5, 60), -3, 3), 3) for _ in range(TRIES))
    assert share_passed(lambda: gate(depth=3, margin=2.0), tries) <= allowed()


def test_a_better_draft_passes_within_100_requests():
    rng = np.random.default_rng(5)
    tries = (requests(np.clip(rng.normal(0.2, 0.3, 100), -3, 3), 3) for _ in range(400))
    assert share_passed(lambda: gate(depth=3), tries) >= 0.95


@pytest.mark.parametrize("share", [0.5, 0.1])
def test_a_gain_in_one_domain_does_not_pay_for_a_loss_in_another(share: float):
    rng, tries = np.random.default_rng(6), []
    for _ in range(TRIES // 4):
        loses = rng.random(150) < share
        one = requests(np.where(loses, -0.3, 0.3) + rng.uniform(-0.5, 0.5, 150), 3)
        tries.append([("code" if lost else "chat", a, b) for lost, (_, a, b) in zip(loses, one, strict=True)])
    assert share_passed(lambda: gate(depth=3), iter(tries)) <= allowed(tries=len(tries))
    if share < 0.5:  # that there was something to notice: all under one name
        assert share_passed(lambda: gate(depth=3), ([("", *one[1:]) for one in each] for each in tries)) > 0.9


@pytest.mark.parametrize(("least", "count"), [(20, 40), (30, 29)])
def test_a_domain_that_loses_just_the_margin_passes_seldom(least: int, count: int):
    """By itself, and as the pool; nor is it often said to lose more."""
    good, rng = requests(np.full(30, 1.0), 3), np.random.default_rng(7)
    tries = [requests(one, 3, "code") + good for one in skewed(rng, 1000, count, 3, mean=-0.5, step=0.7)]
    outcomes = [decide(gate(depth=3, margin=0.5, least=least), one) for one in tries]
    assert outcomes.count("passed") / 1000 <= allowed(tries=1000)
    mirrored = [requests(-1 - one, 3, "code") + good for one in skewed(rng, 500, count, 3, mean=-0.5, step=0.7)]
    outcomes = [decide(gate(depth=3, margin=0.5, least=least), one) for one in mirrored]
    assert outcomes.count("failed") / 500 <= allowed(tries=500)


def needed(step: float, level: float) -> int:
    """Requests until the highest bet on numbers that are all `step` reaches 1 / level."""
    return ceil(log(1 / level) / log1p(0.95 * step))


@pytest.mark.parametrize("tries", [1, 2, 7])
def test_the_level_of_a_candidate_falls_with_the_square_of_its_number(tries: int):
    one = gate(depth=5, tries=tries, margin=1.0)
    one_by_one = [one.add("chat", 2, 2.1) or one.outcome for _ in range(needed(0.02, FIRST / tries**2))]
    assert one_by_one[-2:] == ["undecided", "passed"]


def test_all_levels_together_are_alpha():
    """Of candidates, and of what a losing domain would have to err at: itself, and one pool after another."""
    assert sum(module._share(place) for place in range(1, 10**5)) == pytest.approx(1, abs=1e-5)


def test_a_domain_that_becomes_large_leaves_the_pool_with_all_that_it_brought():
    one = gate(depth=5, margin=1.0, least=100)
    for domain, difference, count in (("chat", -0.5, 99), ("code", 0, 1), ("chat", 2, 150)):
        for _ in range(count):
            one.add(domain, 2, 2 + difference)
    count = needed(1 / 4, FIRST * 6 / (3 * pi) ** 2)
    for _ in range(count - 2):
        one.add("code", 2, 2)
    assert one.outcome == "undecided" and "the pool of small domains ('code')" in one.verdict.reason
    one.add("code", 2, 2)
    assert one.outcome == "passed"


def test_a_large_domain_is_tested_by_itself():
    one = gate(depth=5, margin=0.5, least=10, most=1000)
    for _ in range(200):
        one.add("chat", 2, 3)
        one.add("code", 2, 1.5)
    assert one.outcome == "undecided" and "domain 'code' loses at most 0.5 tokens a round" in one.verdict.reason


def test_a_domain_that_is_shown_to_lose_fails_the_candidate():
    one = gate(depth=3, margin=0.1, least=5)
    while one.outcome == "undecided":
        one.add("chat", 1, 1.2)
        one.add("code", 1, 0.4)
    count = needed(0.5 / 3.1, FIRST * 6 / (2 * pi) ** 2)
    assert one.outcome == "failed"
    assert f"failed after {2 * count} held-out requests (-0.20 tokens a round)" in one.verdict.reason
    assert f"domain 'code' loses more than 0.1 tokens a round: -0.60 in its {count}" in one.verdict.reason
    assert "keep the old draft" in one.verdict.reason


def test_a_candidate_that_uses_up_the_budget_has_failed():
    one = gate(most=30)
    for _ in range(30):
        assert one.outcome == "undecided"
        assert "give more held-out requests" in one.verdict.reason
        one.add("chat", 2, 2)
    assert one.outcome == "failed"
    assert "failed after 30" in one.verdict.reason and "raise most=30" in one.verdict.reason
    assert "log wealth 0.00 of 3.49 that the new draft accepts more" in one.verdict.reason


def test_the_sentence_of_a_passed_gate():
    one = gate(depth=3, margin=0.5)
    while one.outcome == "undecided":
        one.add("chat", 1, 1.5)
    assert f"passed after {needed(0.5 / 3, FIRST)} held-out requests (+0.50 tokens a round)" in one.verdict.reason
    assert "use the new draft" in one.verdict.reason


def test_the_bet_is_made_before_the_number():
    """So wealth is linear in the number."""
    found = []
    for last in (-1.0, 0.0, 0.5):
        wealth = Wealth()
        for x in (0.3, -0.6, 0.1, last):
            wealth.add(x)
        found.append(np.exp(wealth.log))
    low, middle, high = found
    assert middle - low == pytest.approx(2 * (high - middle), rel=1e-12) and low < middle


def test_what_was_shown_once_stays_shown():
    wealth = Wealth()
    for x in (0.5, 0.5, -1.0):
        wealth.add(x)
    assert wealth.best == pytest.approx(2 * log1p(0.95 * 0.5)) and wealth.log < 0


def test_a_difference_counts_up_to_the_cut():
    """So a gain is shown sooner; and what a request loses beyond it is not seen."""
    one, other = gate(depth=3, margin=0.1, cut=0.5), gate(depth=3, margin=0.1)
    for _ in range(needed(0.2 / 0.5, FIRST)):
        one.add("chat", 1, 1.2)
        other.add("chat", 1, 1.2)
    assert (one.outcome, other.outcome) == ("passed", "undecided")
    seldom = [("chat", 2.0, 2.25)] * 9 + [("chat", 2.5, 0.0)]  # on average -0.03, cut at 0.5 +0.18
    outcomes = [decide(gate(depth=3, margin=0.4, cut=cut), seldom * 40) for cut in (0.5, 3.0)]
    assert outcomes == ["passed", "undecided"]


def test_the_pool_that_is_made_anew_has_cut_differences_too():
    one = gate(depth=3, margin=0.1, cut=0.5, least=8)
    for domain, difference, count in (("rare", 0.5, 5), ("rare", -2.5, 1), ("chat", 0.0, 8)):
        for _ in range(count):
            one.add(domain, 2.5, 2.5 + difference)
    assert one.outcome == "undecided" and "passed" not in one.verdict.reason


def test_cut_drafts_of_equal_length_pass_seldom():
    """Two that change places by a coin, so that every cut mean is 0, too; a cut on one side alone would pass."""
    rng = np.random.default_rng(9)
    tries = []
    for one in skewed(rng, TRIES, 60, 3):
        tries.append(requests(one * rng.choice([-1, 1], len(one)), 3))
    assert share_passed(lambda: gate(depth=3, margin=0.4, cut=0.5), iter(tries)) <= allowed()


@pytest.mark.parametrize("value", [nan, inf, -inf, -0.01, 4.01, None, "1"])
def test_lengths_outside_the_depth_are_refused(value: object):
    one = gate()
    with pytest.raises(RequestError, match=r"old=.*from 0 to depth=4"):
        one.add("chat", value, 1)
    with pytest.raises(RequestError, match=r"new=.*from 0 to depth=4"):
        one.add("chat", 1, value)
    one.add("chat", 0, 4)


def test_other_requests_are_refused():
    one = gate(most=20)
    with pytest.raises(RequestError, match="domain=5: give its name"):
        one.add(5, 1, 1)
    for _ in range(20):
        one.add("chat", 1, 1)
    with pytest.raises(RequestError, match="has decided: failed"):
        one.add("chat", 1, 1)


@pytest.mark.parametrize(
    "options",
    [
        {"alpha": 0.0},
        {"cut": 0.0},
        {"alpha": 0.6},
        {"alpha": nan},
        {"margin": -0.1},
        {"least": 0},
        {"least": 30, "most": 20},
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, float]):
    with pytest.raises(ConfigError, match=next(iter(options))):
        GateOptions(**options)


def test_numbers_of_the_gate_out_of_range_are_refused():
    for depth, tries, name in ((0, 1, "depth"), (nan, 1, "depth"), (4, 0, "tries")):
        with pytest.raises(ConfigError, match=name):
            gate(depth=depth, tries=tries)
    with pytest.raises(ConfigError, match="margin=2: must be below cut=2 and depth=2"):
        gate(depth=2, margin=2.0)
