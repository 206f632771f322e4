"""A constraint through the whole loop: it gets every token once, and dead ends end a text as in plain decoding."""

from functools import partial

import pytest
import torch

from outdraft.core.constraint import Beyond
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.decode.parts import Parts
from outdraft.drafters.none import NoDrafter
from outdraft.drafters.shared.composed.ahead import imagine
from outdraft.engine.loop import Engine
from outdraft.options.errors import RequestError
from outdraft.options.params import SamplingParams
from outdraft.testing.contract.masked import EveryOther
from outdraft.testing.subject import run
from outdraft.verify.auto import Auto
from outdraft.verify.top_beta import METHOD as TOP_BETA
from tests.helpers.fakes import AuditedTarget, ConstantPolicy, RandomTreeDrafter, TableTarget

VOCAB = 7


class Script:
    """Allows what `rows` say after so many tokens; the last row from then on."""

    def __init__(self, *rows):
        self.rows, self.told = rows, []

    def advance(self, token):
        self.told.append(token)

    def allowed(self, path):
        may = torch.zeros(VOCAB, dtype=torch.bool)
        may[list(self.rows[min(len(self.told) + len(path), len(self.rows) - 1)])] = True
        return may


def engine(*, depth=4, isolates=False, rule=None, width=3) -> Engine:
    target, other = TableTarget(vocab_size=VOCAB, seed=1), TableTarget(vocab_size=VOCAB, seed=2)
    drafter = RandomTreeDrafter(lambda tokens: torch.softmax(other.next_logits(tokens), -1), max_width=width)
    return Engine(
        Parts(
            target=AuditedTarget(target),
            drafter=drafter if depth else NoDrafter(),
            verifier=rule or Auto(),
            policy=ConstantPolicy(Budget(depth=depth)),
        ),
        isolates=isolates,
    )


def ask(constraint, **settings) -> Request:
    return Request(prompt_token_ids=(1, 2), params=SamplingParams(**settings), constraint=constraint)


def test_every_token_is_advanced_once_in_order():
    made = []

    def make():
        made.append(Script(range(VOCAB)))
        return made[-1]

    outcomes = run(engine(), [ask(make, max_tokens=20, temperature=1.0, seed=seed) for seed in range(3)])
    assert [one.told for one in made] == [outcome.seq.output for outcome in outcomes]
    assert all(outcome.stats.num_draft_tokens > 0 for outcome in outcomes)


def test_what_is_forced_comes_whatever_is_drafted():
    rows = [(3,), (0,), (6,), (6,), (2, 5)]
    for depth in (0, 4):
        output = run(engine(depth=depth), [ask(lambda: Script(*rows), max_tokens=9)])[0].seq.output
        assert output[:4] == [3, 0, 6, 6] and set(output[4:]) <= {2, 5}


@pytest.mark.parametrize("seed", range(12))
def test_a_dead_end_is_reported_where_plain_decoding_comes_to_it(seed):
    """After four tokens nothing may follow: the four are emitted, drafted or not, and no token after them."""
    rows = [range(VOCAB)] * 4 + [()]
    request = ask(lambda: Script(*rows), max_tokens=20, temperature=1.0, seed=seed)
    texts = []
    for depth in (0, 1, 4, 8):
        outcome = run(engine(depth=depth, isolates=True), [request])[0]
        assert outcome.seq.finish_reason == "error" and "leave no token to choose" in str(outcome.events[-1].error)
        texts.append(outcome.seq.output)
    assert len(texts[0]) == 4 and all(text == texts[0] for text in texts)


def test_a_lossy_rule_writes_no_masked_token():
    """Its guesses are kept easily, but not those that the target's distribution forbids."""
    rule = TOP_BETA.build(TOP_BETA.options(beta=VOCAB, gap=1e9))
    make = partial(EveryOther, VOCAB)
    for outcome in run(engine(rule=rule), [ask(make, max_tokens=30, temperature=1.0, seed=i) for i in range(8)]):
        walker = make()
        for token in outcome.seq.output:
            assert walker.allowed([])[token]
            walker.advance(token)


def test_an_imagined_text_is_masked_as_it_would_be():
    seq = engine().prepare(ask(partial(EveryOther, VOCAB), max_tokens=9))
    seq.extend(4)
    further = imagine(imagine(seq, [3, 1]), [5])
    assert further.constraint.allowed([2]).equal(seq.constraint.allowed([3, 1, 5, 2]))
    assert not further.constraint.allowed([2]).equal(seq.constraint.allowed([2]))
    with pytest.raises(NotImplementedError):
        Beyond(seq.constraint, (1,)).advance(2)


class Wrong(Script):
    def __init__(self, answer):
        self.answer = answer

    def allowed(self, path):
        return self.answer


class Failing(Script):
    def allowed(self, path):
        raise ValueError("no idea")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda needed: needed, "the constraint could not be made: TypeError"),
        (lambda: Wrong(None).allowed, "has no advance"),
        (lambda: Failing(), "does not say what may come first: ValueError: no idea"),
        (lambda: 3, "constraint made 3, which has no advance"),
        (lambda: Wrong(torch.ones(VOCAB)), r"allowed\(\[\]\) is torch.float32 of shape \[7\]"),
        (lambda: Wrong(torch.ones(8, dtype=torch.bool)), r"of shape \[8\]: it must be a tensor \[7\] of bool"),
        (lambda: Wrong([True] * VOCAB), r"allowed\(\[\]\) is \[True"),
        (lambda: Wrong(torch.zeros(VOCAB, dtype=torch.bool)), "allows no first token"),
    ],
)
def test_a_bad_constraint_is_refused_before_any_work(make, said):
    with pytest.raises(RequestError, match=said):
        engine().prepare(ask(make))
