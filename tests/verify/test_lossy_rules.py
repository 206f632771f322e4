"""Lossy rules say so, deviate more the further their knob is turned, and are exact where the knob says nothing."""

import math

import pytest
import torch
from verify.distributions import CHAINS, PAIRS, TREES, rule
from verify.measuring import CONTEXT, best_tokens, deviation, greedy_emitted, with_confidence

from outdraft.core.draft import Draft
from outdraft.core.packing import pack
from outdraft.core.registry import find, names
from outdraft.core.verdict import Verdict
from outdraft.options.errors import ConfigError
from outdraft.sampling.coins import KeyedCoins
from outdraft.sampling.draft_coins import KeyedDraftCoins
from outdraft.verify.shared.case import Case, follow_draws
from outdraft.verify.shared.per_draft import PerDraft
from tests.helpers.enumerate_distribution import exact_distribution
from tests.helpers.sample_distribution import sample_distribution
from tests.helpers.tables import drafts_from, one_sequence, random_table, score

KNOBS = {  # from the identity, or the strictest value, outwards
    "typical": [{"epsilon": 1.0, "delta": d} for d in (4.0, 2.0, 1.0, 0.5, 0.0)],
    "rollback": [{"threshold": t} for t in (0.0, 0.5, 1.0, 2.0, 5.0, 50.0)],
    "top_beta": [{"beta": b, "gap": 50.0} for b in (1, 2, 3, 4)],
    "leniency": [{"leniency": x} for x in (1.0, 1.2, 1.5, 2.0, 4.0, 16.0)],
    "sample_tolerance": [{"num_draws": s} for s in (1, 2, 3, 5, 20)],
    "distance_tolerance": [{"distance": d} for d in (0, 1, 2, 3)],
    "minimum_block": [{"size": size} for size in (1, 2, 3, 9)],
}
EXACT_AT_ITS_START = [
    name for name in KNOBS if name != "top_beta"
]  # its best token alone is greedy, not the distribution
SAYS_LOSSLESS_THERE = {"leniency", "sample_tolerance", "distance_tolerance", "minimum_block"}
SHAPES = {"two": (-1, 0, 1), "three": CHAINS["three"], "two levels": TREES["two levels"]}


def mean_deviation(name, options, parents, *, sampled) -> float:
    pairs = [PAIRS["random"], PAIRS["similar"], PAIRS["peaked"]]
    return sum(deviation(rule(name, **options), pair, parents, sampled=sampled, horizon=2) for pair in pairs) / 3


@pytest.mark.parametrize("name", KNOBS)
@pytest.mark.parametrize(("shape", "sampled"), [("two", True), ("three", False), ("two levels", False)])
def test_deviation_grows_with_the_knob(name, shape, sampled):
    """At every turn for deterministic guesses. Of sampled ones, a further kept token may undo another's surplus."""
    found = [mean_deviation(name, options, SHAPES[shape], sampled=sampled) for options in KNOBS[name]]
    assert all(later >= found[0] - 1e-12 for later in found)
    assert sampled or found == sorted(found), found
    assert found[-1] > 0.05
    if name in EXACT_AT_ITS_START:
        assert found[0] < 1e-9


@pytest.mark.parametrize("name", EXACT_AT_ITS_START)
@pytest.mark.parametrize("which", PAIRS)
def test_the_identity_value_is_exact(name, which):
    for parents in SHAPES.values():
        assert deviation(rule(name, **KNOBS[name][0]), PAIRS[which], parents, sampled=False) < 1e-9
    assert deviation(rule(name, **KNOBS[name][0]), PAIRS[which], SHAPES["two"]) < 1e-9


@pytest.mark.parametrize("name", KNOBS)
def test_they_say_what_they_are(name):
    assert rule(name, **KNOBS[name][0]).lossless == (name in SAYS_LOSSLESS_THERE)
    assert not rule(name, **KNOBS[name][-1]).lossless
    assert not find("verifier", name).lossless  # as it is without options


def test_the_catalogue_holds_no_other_lossy_rule():
    assert {name for name in names("verifier") if not find("verifier", name).lossless} == set(KNOBS)


@pytest.mark.parametrize("name", KNOBS)
def test_a_lossy_rule_fails_the_sampled_distribution(name):
    target, drafter = random_table(4, 1, 1), random_table(4, 1, 2)
    result = sample_distribution(rule(name), target, drafts_from(drafter, CHAINS["three"]), num_tokens=800)
    assert not result.passes, result


@pytest.mark.parametrize("name", KNOBS)
@pytest.mark.parametrize("parents", [*CHAINS.values(), *TREES.values()])
def test_greedy_text_is_the_targets_at_the_start_of_the_knob(name, parents):
    """By soft distributions where the rule asks for them, by one-hot ones else."""
    soft = find("verifier", name).soft(find("verifier", name).options(**KNOBS[name][0]))
    target = PAIRS["random"][0] if soft else random_table(4, 2, 9, top_k=1)
    for emitted in greedy_emitted(
        rule(name, **KNOBS[name][0]), target, drafts_from(PAIRS["random"][1], parents, sampled=False)
    ):
        assert emitted == best_tokens(target, len(emitted))


@pytest.mark.parametrize("name", ["rollback", "top_beta", "leniency", "distance_tolerance"])
def test_soft_rules_keep_more_than_the_best_token_of_a_greedy_request(name):
    target, drafter = PAIRS["random"]
    propose = drafts_from(drafter, CHAINS["three"], sampled=False)
    kept = {tuple(emitted) for emitted in greedy_emitted(rule(name, **KNOBS[name][-1]), target, propose)}
    assert any(list(emitted) != best_tokens(target, len(emitted)) for emitted in kept)


@pytest.mark.parametrize("name", ["typical", "sample_tolerance"])
def test_the_others_are_greedy_matching_at_temperature_0(name):
    target = random_table(4, 2, 9, top_k=1)
    for parents in TREES.values():
        propose = drafts_from(PAIRS["random"][1], parents, sampled=False)
        for emitted in greedy_emitted(rule(name), target, propose):
            assert emitted == best_tokens(target, len(emitted))


@pytest.mark.parametrize("leniency", [1.2, 2.0, 4.0])
@pytest.mark.parametrize("which", PAIRS)
def test_leniency_is_bounded(which, leniency):
    """No token comes out with more than l times its own probability, however many siblings: after a rejection, whose
    chance is r, l r (l p - q)_+ / (l - 1 + r) is at most (l p - q)_+. Where much is missing the bound is reached."""
    target, drafter = PAIRS[which]
    for parents in (CHAINS["one"], TREES["wide"]):
        distribution = exact_distribution(
            rule("leniency", leniency=leniency), target, drafts_from(drafter, parents), CONTEXT, 1
        )
        assert bool((distribution <= leniency * target(CONTEXT) + 1e-12).all())
        if which == "peaked":
            assert float((distribution / target(CONTEXT)).max()) == pytest.approx(leniency)


def test_leniency_compares_with_what_the_drafter_believed():
    """Greedy form: p(x) > q(x) / l, where q(x) is the drafter's own probability."""
    target, drafter = PAIRS["random"]
    propose = drafts_from(drafter, CHAINS["one"], sampled=False)
    (guess,) = propose(CONTEXT, None).tokens[1:].tolist()
    edge = float(drafter(CONTEXT)[guess] / target(CONTEXT)[guess])
    best = best_tokens(target, 1)
    assert [guess] != best and edge > 1
    for leniency, kept in ((edge * 1.01, True), (edge * 0.99, False)):
        (emitted,) = greedy_emitted(rule("leniency", leniency=leniency), target, with_confidence(propose, drafter))
        assert (emitted[:-1] == [guess]) == kept


@pytest.mark.parametrize(
    ("first", "options", "second", "shapes"),
    [
        ("distance_tolerance", {"distance": 0}, "coupled", CHAINS | TREES),
        ("minimum_block", {"size": 1}, "coupled", CHAINS | TREES),
        ("sample_tolerance", {"num_draws": 1}, "sequential", CHAINS | TREES),
        ("leniency", {"leniency": 1.0}, "multi_draft", CHAINS | TREES),
    ],
)
def test_identities_coin_for_coin(first, options, second, shapes):
    target, drafter = PAIRS["similar"]
    for parents in shapes.values():
        for seed in range(40):
            draft = drafts_from(drafter, parents)(CONTEXT, KeyedDraftCoins(seed, 1, coupled=False))
            packed, p = score(target, [one_sequence(CONTEXT, seed=seed)], [draft])
            verdicts = [v(packed, p, [KeyedCoins(seed, 1)]) for v in (rule(first, **options), rule(second))]
            assert verdicts[0] == verdicts[1]


def test_the_longest_path_wins_then_the_likeliest():
    """Root -> a (.5) -> c (.3); root -> b (.4) -> d (.6): equal depth, so b d; without d, the longer a c."""
    draft = Draft(tokens=torch.tensor([0, 1, 2, 3, 1]), parents=torch.tensor([-1, 0, 0, 1, 2]))
    p = torch.tensor(
        [[0.1, 0.5, 0.4, 0.0], [0.3, 0.2, 0.2, 0.3], [0.2, 0.6, 0.1, 0.1], [0, 0, 1.0, 0], [1.0, 0, 0, 0]],
        dtype=torch.float64,
    )
    packed = pack([one_sequence([0])], [draft])
    for threshold, path, token in ((0.25, (2, 4), 0), (0.45, (1,), None), (0.7, (), None)):
        (verdict,) = rule("rollback", threshold=-math.log(threshold))(packed, p, [KeyedCoins(0, 0)])
        assert verdict.path == path
        assert token is None or verdict.token == token
    p[2] = torch.tensor([0.9, 0.1, 0, 0])  # d falls out
    (verdict,) = rule("rollback", threshold=-math.log(0.25))(packed, p, [KeyedCoins(0, 0)])
    assert (verdict.path, verdict.token, verdict.bonus) == ((1, 3), 2, True)


def kept(verifier, p: list[float], token: int) -> bool:
    """Whether a lone guess of this token is kept where the target says p."""
    packed = pack([one_sequence([0])], [Draft(tokens=torch.tensor([0, token]), parents=torch.tensor([-1, 0]))])
    rows = torch.tensor([p, [1 / len(p)] * len(p)], dtype=torch.float64)
    (verdict,) = verifier(packed, rows, [KeyedCoins(0, 0)])
    return verdict.path == (1,)


def test_typical_asks_less_of_a_guess_the_less_sure_the_target_is():
    """The same probability, 0.06, at entropies of 2.1, 0.95 and 0.24 nats: bars at 0.037, 0.09 and 0.09."""
    flat, fair, sure = [0.06, *[0.94 / 7] * 7], [0.06, 0.6, 0.3, 0.04], [0.06, 0.94, 0.0, 0.0]
    assert [kept(rule("typical"), p, 0) for p in (flat, fair, sure)] == [True, False, False]
    below, above = (0.3 * math.exp(-entropy(fair)) * x for x in (0.9, 1.1))
    for probability, is_kept in ((below, False), (above, True)):
        p = [probability, *[x * (1 - probability) / 0.94 for x in fair[1:]]]
        bar = 0.3 * math.exp(-entropy(p))
        assert (probability > bar) == is_kept and kept(rule("typical", epsilon=1.0), p, 0) == is_kept


def entropy(p: list[float]) -> float:
    return -sum(x * math.log(x) for x in p if x > 0)


def test_top_beta_asks_for_both_the_rank_and_the_gap():
    """The second best at 1.1 nats behind the best, the third at 2.3: each limit alone turns guesses away."""
    p = [0.6, 0.2, 0.06, 0.05, 0.05, 0.04]
    for options, tokens in (
        ({"beta": 6, "gap": 50.0}, {0, 1, 2, 3, 4, 5}),
        ({"beta": 6, "gap": 2.0}, {0, 1}),
        ({"beta": 6, "gap": 1.0}, {0}),
        ({"beta": 2, "gap": 50.0}, {0, 1}),
        ({}, {0, 1, 2, 3, 4}),  # the published 5 and 3.0
    ):
        assert {token for token in range(6) if kept(rule("top_beta", **options), p, token)} == tokens, options
    assert not kept(rule("top_beta"), [0.94, 0.04, 0.02, 0.0], 1), "3.2 nats behind"


def test_a_near_guess_must_be_possible():
    """Id 1 is the target's own; 0 and 2 are one off. What has no probability is masked, or truncated away."""
    for p, tokens in (
        ([0.0, 1.0, 0.0, 0.0], {1}),
        ([1e-30, 1.0, 0.0, 1e-30], {0, 1}),
        ([0.0, 1.0, 1e-30, 0.0], {1, 2}),
    ):
        assert {token for token in range(4) if kept(rule("distance_tolerance"), p, token)} == tokens
    assert kept(rule("distance_tolerance", distance=2), [0.0, 1.0, 0.0, 1e-30], 3)


def test_of_equal_tokens_the_one_that_plain_decoding_takes_is_before_the_others():
    p = [0.1, 0.3, 0.3, 0.3]
    for beta, tokens in ((1, {1}), (2, {1, 2}), (3, {1, 2, 3}), (4, {0, 1, 2, 3})):
        assert {token for token in range(4) if kept(rule("top_beta", beta=beta), p, token)} == tokens


def rounds_filled(verifier, size: int) -> int:
    """How many rounds of 120 were filled up, each checked: what the exact walk keeps, then the eldest children."""
    target, drafter = PAIRS["random"]
    filled = 0
    for parents in (CHAINS["three"], TREES["two levels"]):
        for seed in range(60):
            draft = drafts_from(drafter, parents)(CONTEXT, KeyedDraftCoins(seed, 1, coupled=False))
            packed, p = score(target, [one_sequence(CONTEXT, seed=seed)], [draft])
            (exact,), (kept,) = (judge(packed, p, [KeyedCoins(seed, 1)]) for judge in (rule("coupled"), verifier))
            children = packed.trees[0].children
            path = list(exact.path)
            while len(path) < size - 1 and children[path[-1] if path else 0]:
                path.append(children[path[-1] if path else 0][0])
            assert list(kept.path) == path and kept.bonus == (not children[path[-1] if path else 0])
            if len(path) == len(exact.path):
                assert kept == exact
            filled += len(path) > len(exact.path)
            end = path[-1] if path else 0
            assert kept.token == KeyedCoins(seed, 1).draw(p[end], len(path))  # the target's own, whatever stands before
    return filled


@pytest.mark.parametrize("size", [1, 2, 3, 4, 9])
def test_a_round_adds_so_many_tokens_and_more_only_if_they_are_right(size):
    assert (rounds_filled(rule("minimum_block", size=size), size) > 0) == (size > 1)


def fills_up(count: int, child: int = 0, ahead: int = 0, always: bool = False) -> PerDraft:
    """The rule with a fault: how many guesses, which child, how far off the coin, and right blocks cut to size too."""

    def judge(case: Case) -> Verdict:
        path = follow_draws(case).path
        if always:
            path = path[:count]
        elif len(path) >= count:
            return follow_draws(case)
        node, depth = (path[-1], len(path)) if path else (0, 0)
        while depth < count and case.tree.children[node]:
            node, depth = case.tree.children[node][child], depth + 1
        return case.verdict(node, case.coins.draw(case.p[node], depth + ahead))

    return PerDraft(judge, lossless=False)


@pytest.mark.parametrize(
    "fault",
    [
        {"count": 1},  # the target's own token is not counted into the size
        {"count": 3},  # or twice
        {"count": 2, "child": -1},
        {"count": 2, "ahead": 1},  # the coin of another position
        {"count": 2, "always": True},  # the least size taken for the greatest
    ],
    ids=str,
)
def test_a_planted_fault_in_the_least_size_is_found(fault):
    """Power check. Without a fault the same rule passes, so that what is found is the fault."""
    assert rounds_filled(fills_up(2), 3) > 0
    with pytest.raises(AssertionError):
        rounds_filled(fills_up(**fault), 3)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("typical", {"epsilon": -1}),
        ("rollback", {"threshold": -1}),
        ("top_beta", {"beta": 0}),
        ("top_beta", {"gap": -1}),
        ("leniency", {"leniency": 0.5}),
        ("sample_tolerance", {"num_draws": 0}),
        ("distance_tolerance", {"distance": -1}),
        ("minimum_block", {"size": 0}),
    ],
)
def test_bad_options(name, bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        rule(name, **bad)
