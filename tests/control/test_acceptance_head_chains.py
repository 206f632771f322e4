"""A judge of hidden states ends chains where it says, for every drafter that hands its states over; others refuse."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from contracts.sides import random_heads, twin
from control.test_acceptance_head import HANDING, PROMPT, VOCAB, plain_copy, policy_of, rows_of
from control.world import sequence

from outdraft.control.acceptance_head.learn import LEARN, AcceptanceLearning
from outdraft.core.learner_registry import find_learner
from outdraft.core.policy import Budget, StateJudge
from outdraft.core.request import Request
from outdraft.drafters.shared.chains.grow import grow_chains
from outdraft.drafters.shared.chains.network import ChainNetwork
from outdraft.drafters.shared.limits import cutoffs_of
from outdraft.options.errors import CapabilityError
from outdraft.options.params import SamplingParams
from outdraft.testing.reference_rule import ConstantPolicy
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject, run
from outdraft.training.lessons import Teacher


class Recorder:
    """A judge that lets everything pass, and keeps what it was shown."""

    def __init__(self):
        self.seen, self.told = [], []

    def __call__(self, states, told):
        self.seen.append(states.clone())
        self.told += told.tolist()
        return torch.ones(len(states))


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("kind", HANDING)
def test_the_states_that_are_served_are_those_that_are_learned_from(kind, reads, tmp_path):
    """Token by token of a chain: what the drafter hands over is what its learner says of the text with that chain.

    So is its own probability of the token, where the judge reads it.
    """
    side = twin if kind == "draft_model" else random_heads(kind)
    options = {} if kind == "draft_model" else {"width": 1}
    subject = Subject(DrafterRow(drafter=kind, side=side, options=options), tmp_path, vocab_size=VOCAB)
    recorder, depth = Recorder(), 4
    policy = ConstantPolicy(
        Budget(depth=depth, survival=0.5, judge=StateJudge(chances=recorder, reads_probability=reads))
    )
    request = Request(prompt_token_ids=PROMPT, params=SamplingParams(max_tokens=12, ignore_eos=True))
    engine = subject.engine(policy=policy)
    drafts, propose = [], engine.parts.drafter.propose

    def watched(seqs, budgets):
        made = propose(seqs, budgets)
        drafts.append((list(seqs[0].tokens), made[0].tokens.tolist()))
        return made

    engine.parts.drafter.propose = watched
    run(engine, [request])
    known, chain = next((text, tokens) for text, tokens in drafts if len(tokens) == depth + 1)
    assert len(recorder.seen) >= depth - 1 and all(len(one) == 1 for one in recorder.seen)

    own = plain_copy(subject.decoder)
    method = find_learner(kind)
    learner = method.load(method.options(), own, Path(subject.options.model))
    ids = torch.tensor([[*known, *chain[1:], 0]])
    lesson = Teacher(own, learner.taps).lesson(rows_of(ids))
    with torch.no_grad():
        outlook = learner.look(replace(lesson, moment=None))
    for drafted in range(1, depth):
        guess = outlook.guesses[0 if outlook.recurs else drafted]
        row = len(known) - 1 + drafted
        state = guess.states[(guess.rows == row).nonzero()[0, 0]]
        torch.testing.assert_close(recorder.seen[drafted - 1][0].float(), state.float(), atol=2e-4, rtol=2e-3)
        guess, wanted = outlook.guesses[0 if outlook.recurs else drafted - 1], 1.0
        if reads:
            logits = guess.head(guess.states[(guess.rows == row - 1).nonzero()[0]])[0].detach().float()
            token = chain[drafted] if guess.vocab is None else int((guess.vocab == chain[drafted]).nonzero()[0, 0])
            wanted = float(logits.softmax(-1)[token])
        assert recorder.told[drafted - 1] == pytest.approx(wanted, abs=1e-3)


class Scripted:
    """Chances for the tokens of one chain, as written."""

    def __init__(self, *chances):
        self.chances, self.at = chances, 0

    def __call__(self, states, told):
        self.at += 1
        return torch.full((len(states),), self.chances[self.at - 1])


@pytest.mark.parametrize(
    ("chances", "least", "length"),
    [
        ((0.9, 0.9, 0.3, 1.0, 1.0), 1, 3),
        ((0.9, 0.7, 0.7, 0.1), 1, 4),
        ((0.1, 0.1, 1.0), 1, 1),
        ((0.1, 0.1, 1.0), 2, 2),
        ((1.0,) * 8, 1, 6),
    ],
)
def test_a_chain_ends_where_the_product_says(chances, least, length, tmp_path):
    """Threshold 0.7: the product falls below 0.3 after the token that is kept; 6 is the budget's own end."""
    subject = Subject(DrafterRow(drafter="draft_model", side=twin), tmp_path, vocab_size=VOCAB)
    budget = Budget(depth=6, survival=0.3, judge=StateJudge(chances=Scripted(*chances), least=least))
    request = Request(prompt_token_ids=PROMPT, params=SamplingParams(max_tokens=8, ignore_eos=True))
    engine = subject.engine(policy=ConstantPolicy(budget))
    seq = engine.add(request)
    engine.step()
    (draft,) = engine.parts.drafter.propose([seq], [budget])
    assert draft.num_nodes - 1 == length and draft.confidence is None


def test_a_sequence_is_not_judged_by_another_ones_budget(tmp_path):
    """One chain ends early, one goes by its own probabilities, one is never cut: side by side."""
    subject = Subject(DrafterRow(drafter="draft_model", side=twin), tmp_path, vocab_size=VOCAB)
    engine = subject.engine()
    requests = [Request(prompt_token_ids=(*PROMPT, i), params=SamplingParams(max_tokens=9)) for i in range(3)]
    seqs = [engine.add(request) for request in requests]
    engine.step()
    never = StateJudge(chances=lambda states, told: torch.zeros(len(states)))
    budgets = [Budget(depth=5, survival=0.5, judge=never), Budget(depth=5, survival=1e-9), Budget(depth=5)]
    drafts = engine.parts.drafter.propose(seqs, budgets)
    assert [draft.num_nodes - 1 for draft in drafts] == [1, 5, 5]
    alone = engine.parts.drafter.propose(seqs[2:], budgets[2:])[0]
    assert alone.tokens.tolist() == drafts[2].tokens.tolist()


def test_who_hands_no_states_over_is_refused(tmp_path):
    for drafter, side, options in (
        ("ngram", None, {}),
        ("medusa", random_heads("medusa"), {"width": 1}),
        ("eagle", random_heads("eagle"), {}),
        ("draft_model", twin, {"width": 2}),
    ):
        given = {"side": side} if side else {}
        (tmp_path / drafter).mkdir()
        subject = Subject(DrafterRow(drafter=drafter, options=options, **given), tmp_path / drafter, vocab_size=VOCAB)
        with pytest.raises(CapabilityError, match=f"drafter '{drafter}' hands none over"):
            policy_of(subject)
    with pytest.raises(CapabilityError, match="hidden state"):
        LEARN.new(AcceptanceLearning(draft=str(tmp_path / "medusa")), plain_copy(subject.decoder), 0)


@pytest.mark.parametrize("way", ["chain", "record"])
def test_chains_that_a_judge_ends_are_stepped_whatever_else_the_network_can(way):
    def feed(step, rows, tokens, num_open):
        return torch.eye(5)[[(token + 1) % 5 for token in tokens[:num_open]]]

    def whole(*asked):
        raise AssertionError("kernels and recordings do not know the judge")

    network = ChainNetwork(feed=feed, states=lambda: torch.zeros(1, 2), **{way: whole})
    never = StateJudge(chances=lambda states, told: torch.zeros(len(states)), least=2)
    cutoffs = cutoffs_of([Budget(depth=4, survival=0.5, judge=never)])
    (draft,) = grow_chains([sequence()], [4], network, cutoffs, sample="match")
    assert draft.tokens.tolist() == [1, 2, 3]
    with pytest.raises(CapabilityError, match="hands none over"):
        grow_chains([sequence()], [4], ChainNetwork(feed=feed), cutoffs, sample="match")
