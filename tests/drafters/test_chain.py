"""The chain loop: ragged depths, drop-outs, the distribution really drawn from, coins that no batch can change."""

import pytest
import torch
from drafters.drafting import sequence

from outdraft.core.policy import Budget
from outdraft.drafters.shared.chains.grow import grow_chains
from outdraft.drafters.shared.chains.network import ChainNetwork
from outdraft.drafters.shared.limits import cutoffs_of
from outdraft.options.errors import NumericsError
from tests.helpers.table_target import TableTarget

TABLE = TableTarget(vocab_size=7, order=2, sharpness=1.5)


class TableFeed:
    """A drafter's network that is a table; records every call."""

    def __init__(self, seqs):
        self.texts = [list(seq.tokens[:-1]) for seq in seqs]
        self.calls = []

    def __call__(self, step, rows, tokens, num_open):
        self.calls.append((step, list(rows), num_open))
        for row, token in zip(rows, tokens, strict=True):
            self.texts[row].append(token)
        rows = rows[:num_open]
        return torch.stack([TABLE.next_logits(self.texts[row]) for row in rows]) if rows else torch.zeros(0, 7)


def grow(seqs, depths, *, sample="match", confidence_threshold=0.0, budgets=None, feed_last=False):
    feed = TableFeed(seqs)
    network = ChainNetwork(feed=feed, feed_last=feed_last)
    cutoffs = cutoffs_of(budgets or [Budget(depth=9)] * len(seqs), confidence_threshold)
    return grow_chains(seqs, depths, network, cutoffs, sample=sample), feed


def test_ragged_depths_drop_out():
    seqs = [sequence([1, 2]), sequence([3]), sequence([4, 5]), sequence([6])]
    drafts, feed = grow(seqs, [2, 0, 4, 1])
    assert [draft.num_nodes for draft in drafts] == [3, 1, 5, 2]
    assert feed.calls == [(0, [0, 2, 3], 3), (1, [0, 2], 2), (2, [2], 1), (3, [2], 1)]


def test_last_tokens_are_fed_when_asked():
    seqs = [sequence([1, 2]), sequence([3]), sequence([4, 5])]
    drafts, feed = grow(seqs, [1, 0, 2], feed_last=True)
    assert feed.calls == [(0, [0, 2], 2), (1, [2, 0], 1), (2, [2], 0)]
    for seq, draft, text in zip(seqs, drafts, feed.texts, strict=True):
        if draft.num_nodes > 1:
            assert text == [*seq.tokens[:-1], *draft.tokens.tolist()]


def test_greedy_is_the_argmax_without_a_distribution():
    drafts, _ = grow([sequence([1, 2])], [4])
    text = [1, 2]
    for _ in range(4):
        text.append(int(TABLE.next_logits(text).argmax()))
    assert drafts[0].tokens.tolist() == text[1:] and drafts[0].q is None
    sampled, _ = grow([sequence([1, 2], temperature=1.0)], [4], sample="greedy")
    assert sampled[0].tokens.tolist() == text[1:] and sampled[0].q is None


def test_penalties_reach_the_draft():
    plain, _ = grow([sequence([1, 2])], [1])
    banned = int(plain[0].tokens[1])
    drafts, _ = grow([sequence([1, 2], logit_bias={banned: -100.0})], [3])
    assert banned not in drafts[0].tokens[1:].tolist() and drafts[0].q is None


@pytest.mark.parametrize(
    "params", [{"temperature": 1.0}, {"temperature": 0.7, "top_k": 3}, {"temperature": 1.3, "top_p": 0.8}]
)
def test_q_is_the_distribution_really_drawn_from(params):
    counts, n = torch.zeros(2, 7, dtype=torch.float64), 1000
    likely = int(TABLE.next_logits([1, 2]).argmax())
    for seed in range(n):
        draft = grow([sequence([1, 2], seed=seed, **params)], [2])[0][0]
        counts[0, draft.tokens[1]] += 1
        if draft.tokens[1] == likely:
            counts[1, draft.tokens[2]] += 1
            second = draft.q[1]
        first = draft.q[0]
    for seen, distribution in ((counts[0], first), (counts[1], second)):
        assert (seen[distribution == 0] == 0).all()
        expected = distribution[distribution > 0] * seen.sum()
        chi2 = float(((seen[distribution > 0] - expected) ** 2 / expected).sum())
        assert chi2 < 30  # at most 6 degrees of freedom: p < 4e-5


def test_the_batch_does_not_change_the_guess():
    def alone(tokens):
        return grow([sequence(tokens, seed=5, temperature=1.0)], [4])[0][0]

    texts = ([1, 2], [3, 3, 3], [4], [1, 2])
    together, _ = grow([sequence(t, seed=5, temperature=1.0) for t in texts], [4] * 4)
    for tokens, draft in zip(texts, together, strict=True):
        assert torch.equal(alone(tokens).tokens, draft.tokens) and torch.equal(alone(tokens).q, draft.q)


def test_a_low_confidence_token_is_kept_and_ends_the_chain():
    full, _ = grow([sequence([1, 2])], [6])
    text, probs = [1, 2], []
    for token in full[0].tokens[1:].tolist():
        probs.append(float(torch.softmax(TABLE.next_logits(text), -1)[token]))
        text.append(token)
    threshold = sorted(probs)[2]  # two tokens are below it
    first_unsure = next(i for i, prob in enumerate(probs) if prob < threshold - 1e-9)
    cut, _ = grow([sequence([1, 2])], [6], confidence_threshold=threshold - 1e-9)
    assert cut[0].tokens.tolist() == full[0].tokens.tolist()[: first_unsure + 2]


@pytest.mark.parametrize("params", [{}, {"temperature": 1.0}])
def test_nan_is_an_error(params):
    with pytest.raises(NumericsError):
        broken = ChainNetwork(feed=lambda *_: torch.full((1, 7), float("nan")))
        grow_chains([sequence([1], **params)], [2], broken, cutoffs_of([Budget(depth=2)]), sample="match")


def test_a_budget_may_ask_for_confidence():
    """Each sequence has a cutoff of its own, for a token and for a path; one of which none is asked has it too."""
    seqs = [sequence([1, 2]), sequence([1, 2]), sequence([1, 2]), sequence([1, 2], temperature=1.0)]
    whole = grow(seqs, [6] * 4, budgets=[Budget(depth=6, confidence=1e-9)] * 4)[0]
    sure = [draft.confidence.tolist() for draft in whole]
    distribution = [float(whole[3].q[i][token]) for i, token in enumerate(whole[3].tokens[1:])]
    assert sure[0][0] == 1.0 and sure[3][1:] == pytest.approx(distribution)  # a drawn token's is its distribution's
    raw, text = [], [1, 2]
    for token in whole[0].tokens[1:].tolist():
        raw.append(float(torch.softmax(TABLE.next_logits(text), -1)[token]))
        text.append(token)
    assert sure[0][1:] == pytest.approx(raw)
    least = sorted(raw)[1] + 1e-6  # two tokens are below
    path = raw[0] * raw[1] + 1e-6
    budgets = [Budget(depth=6), Budget(depth=6, confidence=least), Budget(depth=6, survival=path), Budget(depth=0)]
    cut = grow(seqs, [6, 6, 6, 0], budgets=budgets)[0]
    first = next(i for i, each in enumerate(raw) if each < least)
    assert [draft.num_nodes for draft in cut] == [7, first + 2, 3, 1]
    for draft, full in zip(cut, whole, strict=True):
        assert torch.equal(draft.tokens, full.tokens[: draft.num_nodes])
        torch.testing.assert_close(draft.confidence, full.confidence[: draft.num_nodes])
    assert grow(seqs, [6] * 4, budgets=[Budget(depth=6)] * 4)[0][0].confidence is None
