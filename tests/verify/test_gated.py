"""Gates: every one is exact with its residual, and shows as lossy without; harsher gates accept less."""

import pytest
import torch
from verify.distributions import CHAINS, PAIRS, TREES, rule
from verify.measuring import CONTEXT, best_tokens, deviation, greedy_emitted, with_confidence

from outdraft.engine.naming.recipe import read_recipe
from outdraft.options.errors import ConfigError
from outdraft.sampling.coins import KeyedCoins
from outdraft.sampling.draft_coins import KeyedDraftCoins
from outdraft.verify.gated import GatedOptions, open_tokens
from tests.helpers.enumerate_distribution import expected_accepted
from tests.helpers.sample_distribution import sample_distribution
from tests.helpers.tables import blend, drafts_from, one_sequence, random_table, score

GATES = {
    "top_k": {"top_k": 2},
    "threshold": {"threshold": 0.3},
    "deterministic": {"ratio": 1.0},
    "conservative": {"ratio": 0.5},
    "confidence": {"confidence": 0.25},
    "all": {"top_k": 3, "threshold": 0.1, "ratio": 0.5, "confidence": 0.1},
    "any": {"top_k": 1, "threshold": 0.3, "combine": "any"},
    "shut": {"threshold": 1.1},
}
SHAPES = {"three": CHAINS["three"], "wide": TREES["wide"], "long and short": TREES["long and short"]}


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_gate_is_exact(gate, shape):
    verifier = rule("gated", **GATES[gate])
    assert verifier.lossless
    turn = [*GATES].index(gate) + [*SHAPES].index(shape)  # every pair is sampled, or deterministic, in every other case
    large = shape == "long and short"
    for which in ("q has zeros", "both have zeros", "drafter out of its depth") if large else [*PAIRS][turn % 2 :: 2]:
        assert deviation(verifier, PAIRS[which], SHAPES[shape]) < 1e-9, which
    for which in [*PAIRS][(turn + 1) % 2 :: 2]:
        propose = with_confidence(drafts_from(PAIRS[which][1], SHAPES[shape], sampled=False), PAIRS[which][1])
        assert deviation(verifier, PAIRS[which], SHAPES[shape], propose=propose) < 1e-9, which


@pytest.mark.parametrize("gate", ["top_k", "threshold", "deterministic", "conservative"])
def test_the_originals_are_lossy_and_say_so(gate):
    verifier = rule("gated", **GATES[gate], exact=False)
    assert not verifier.lossless
    assert deviation(verifier, PAIRS["random"], CHAINS["three"]) > 0.01


def test_a_harsher_gate_accepts_less():
    target, drafter = PAIRS["random"]
    for name, values in (("threshold", (0, 0.1, 0.3, 0.6, 1.1)), ("ratio", (0, 0.3, 0.5, 1)), ("top_k", (4, 3, 2, 1))):
        counts = [
            expected_accepted(rule("gated", **{name: value}), target, drafts_from(drafter, CHAINS["three"]), CONTEXT)
            for value in values
        ]
        assert counts == sorted(counts, reverse=True) and counts[0] > counts[-1], name


def test_without_a_gate_it_is_multi_draft_coin_for_coin():
    target, drafter = PAIRS["similar"]
    for seed in range(100):
        draft = drafts_from(drafter, TREES["two levels"])(CONTEXT, KeyedDraftCoins(seed, 1, coupled=False))
        packed, p = score(target, [one_sequence(CONTEXT, seed=seed)], [draft])
        (a,), (b,) = (rule(name)(packed, p, [KeyedCoins(seed, 1)]) for name in ("gated", "multi_draft"))
        assert a == b


def open_to(p, **options) -> list[int]:
    """The tokens that may be accepted where the target says `p`."""
    return open_tokens(GatedOptions(**options), torch.tensor(p), 1.0, 1.0).nonzero().flatten().tolist()


def test_gates_may_be_alternatives():
    """Top-k or threshold: the best token is open however improbable, and a probable one however it ranks."""
    flat, steep = [0.3, 0.28, 0.22, 0.2], [0.6, 0.25, 0.1, 0.05]
    both, either = {"top_k": 1, "threshold": 0.25}, {"top_k": 1, "threshold": 0.25, "combine": "any"}
    assert open_to(flat, **both) == [0] and open_to(flat, **either) == [0, 1]
    assert open_to(steep, top_k=3, threshold=0.5) == [0] and open_to(steep, top_k=3, threshold=0.5, combine="any") == [
        0,
        1,
        2,
    ]
    assert open_to(flat, threshold=0.9) == [] and open_to(flat, top_k=1, threshold=0.9, combine="any") == [0]
    assert open_to(flat, threshold=0.25, combine="any") == [0, 1], "a gate that is not set opens nothing"


def test_the_gate_of_confidence_is_open_from_its_number_on():
    p, sure = torch.full((2,), 0.5), torch.tensor([0.4, 0.2], dtype=torch.float64)
    for least, opened in ((0.2, [True, True]), (0.3, [True, False]), (0.4, [True, False]), (0.5, [False, False])):
        assert open_tokens(GatedOptions(confidence=least), p, 1.0, sure).tolist() == opened, least


def test_the_lossy_review_accepts_at_least_what_the_exact_rule_accepts():
    """As the recipe has it: of greedy requests in every round, of sampled ones on average over all outcomes."""
    review = rule("gated", **read_recipe("draft_review_lossy").verifier.options)
    more, sampled = 0, [0.0, 0.0]
    for seed in range(20):
        target, other = random_table(16, 1, seed), random_table(16, 1, 100 + seed)
        propose = drafts_from(blend(target, other, 0.7), CHAINS["three"], sampled=False)
        (lossy,), (exact,) = (greedy_emitted(which, target, propose) for which in (review, rule("greedy")))
        assert len(lossy) >= len(exact)
        more += len(lossy) > len(exact)
        for i, which in enumerate((review, rule("sequential"))):
            sampled[i] += expected_accepted(which, target, propose, CONTEXT)
    assert more > 0 and sampled[0] > sampled[1]


@pytest.mark.parametrize("sampled", [True, False])
def test_lossy_deviation_grows_as_the_threshold_falls(sampled):
    """Above 1 nothing passes, and what is left is plain decoding."""
    found = [
        deviation(rule("gated", threshold=t, exact=False), PAIRS["random"], CHAINS["three"], sampled=sampled)
        for t in (1.1, 0.6, 0.4, 0.2, 1e-9)
    ]
    assert found[0] < 1e-9 and found == sorted(found) and found[-1] > 0.1


def test_lossy_greedy_text_is_the_targets_where_nothing_passes():
    target, drafter = PAIRS["random"]
    for parents in (*CHAINS.values(), *TREES.values()):
        for emitted in greedy_emitted(
            rule("gated", threshold=1.1, exact=False), target, drafts_from(drafter, parents, sampled=False)
        ):
            assert emitted == best_tokens(target, len(emitted))


def test_texts_have_the_targets_distribution_and_the_original_fails():
    target, drafter = random_table(4, 1, 1), random_table(4, 1, 2)
    gate = {"threshold": 0.15, "ratio": 0.5}
    honest = sample_distribution(rule("gated", **gate), target, drafts_from(drafter, (-1, 0, 0, 1)), num_tokens=1500)
    assert honest.passes, honest
    original = rule("gated", **gate, exact=False)
    lossy = sample_distribution(original, target, drafts_from(drafter, CHAINS["three"]), num_tokens=1500)
    assert not lossy.passes, lossy


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"top_k": -1}, "top_k=-1"),
        ({"ratio": -0.5}, "ratio=-0.5"),
        ({"combine": "either"}, "combine='either'"),
        ({"exact": False}, "one of .*confidence"),
    ],
)
def test_bad_options(bad, said):
    with pytest.raises(ConfigError, match=said):
        rule("gated", **bad)
