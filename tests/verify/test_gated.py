"""Gates: every one is exact with its residual, and shows as lossy without; harsher gates accept less."""

import pytest
from verify.laws import CHAINS, PAIRS, TREES, rule
from verify.measuring import CONTEXT, best_tokens, deviation, greedy_emitted, with_confidence

from outdraft.core.errors import ConfigError
from outdraft.sampling.coins import KeyedCoins, KeyedDraftCoins
from outdraft.testing.enumerate_law import expected_accepted
from outdraft.testing.sample_law import sample_law
from outdraft.testing.tables import drafts_from, one_sequence, random_table, score

GATES = {
    "top_k": {"top_k": 2},
    "threshold": {"threshold": 0.3},
    "deterministic": {"ratio": 1.0},
    "conservative": {"ratio": 0.5},
    "confidence": {"confidence": 0.25},
    "all": {"top_k": 3, "threshold": 0.1, "ratio": 0.5, "confidence": 0.1},
    "shut": {"threshold": 1.1},
}
SHAPES = {"three": CHAINS["three"], "wide": TREES["wide"], "long and short": TREES["long and short"]}


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_gate_is_exact(gate, shape):
    verifier = rule("gated", **GATES[gate])
    assert verifier.lossless
    large = shape == "long and short"
    for which in ("q has zeros", "both have zeros", "drafter out of its depth") if large else PAIRS:
        assert deviation(verifier, PAIRS[which], SHAPES[shape]) < 1e-9, which
    for which in PAIRS:
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


def test_texts_have_the_targets_law_and_the_original_fails():
    target, drafter = random_table(8, 1, 1), random_table(8, 1, 2)
    gate = {"threshold": 0.15, "ratio": 0.5}
    honest = sample_law(rule("gated", **gate), target, drafts_from(drafter, (-1, 0, 0, 1)), num_tokens=4000)
    assert honest.passes, honest
    original = rule("gated", **gate, exact=False)
    lossy = sample_law(original, target, drafts_from(drafter, CHAINS["three"]), num_tokens=2000)
    assert not lossy.passes, lossy


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"top_k": -1}, "top_k=-1"),
        ({"ratio": -0.5}, "ratio=-0.5"),
        ({"exact": False}, "one of .*confidence"),
    ],
)
def test_bad_options(bad, said):
    with pytest.raises(ConfigError, match=said):
        rule("gated", **bad)
