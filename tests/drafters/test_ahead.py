"""Drafters that work beside the target: the same text overlapped and serial, cancellation, errors from the thread."""

from dataclasses import replace
from math import prod

import pytest
from contracts.sides import inside, twin
from drafters.drafting import sequence

from outdraft.core.draft import Continuation, chain
from outdraft.core.drafter import Seen, Traits
from outdraft.core.policy import Budget
from outdraft.core.registry import find
from outdraft.core.request import Request
from outdraft.core.target import Needs
from outdraft.core.verdict import Verdict
from outdraft.decode.executor import Overlapped
from outdraft.drafters.shared.composed.ahead import AheadDrafter, AheadGuess, first_path
from outdraft.options.errors import CapabilityError
from outdraft.options.params import SamplingParams
from outdraft.testing.contract.ground import requests
from outdraft.testing.reference_rule import ConstantPolicy
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject, run
from outdraft.verify.auto import Auto

NAMES = ("pearl", "run_ahead", "ssd")
ROWS = {
    "pearl": DrafterRow(drafter="pearl", side=inside(twin)),
    "run_ahead": DrafterRow(drafter="run_ahead", side=inside(twin), options={"window": 8}),
    "ssd": DrafterRow(drafter="ssd", side=inside(twin, width=2), options={"outcomes": 3}),
}
WAYS = {
    "greedy": SamplingParams(max_tokens=20),
    "seeded": SamplingParams(max_tokens=20, temperature=1.0, seed=4),
    "penalised": SamplingParams(max_tokens=20, temperature=0.8, seed=4, repetition_penalty=1.3, presence_penalty=0.2),
}


@pytest.fixture(scope="module", params=NAMES)
def subject(request, tmp_path_factory) -> Subject:
    return Subject(ROWS[request.param], tmp_path_factory.mktemp("side"))


def overlapped(subject, **settings):
    engine = subject.engine(**settings)
    engine.parts = replace(engine.parts, executor=Overlapped())
    return engine


def test_overlapped_text_is_the_serial_text(subject):
    """Each prompt in one way; over three drafters in each."""
    turn, ways = NAMES.index(subject.row.drafter), [requests(params) for params in WAYS.values()]
    batch = [ways[(i + turn) % len(ways)][i] for i in range(len(ways[0]))]
    wanted = [subject.oracle(request) for request in batch]
    for engine in (subject.engine(verifier=Auto()), overlapped(subject, verifier=Auto(), recheck=True)):
        found = run(engine, batch)
        assert [one.seq.output for one in found] == wanted
        assert sum(one.stats.num_accepted_tokens for one in found) > 0


def test_a_fixed_amount_of_drafting_beside_the_pass_changes_no_count(tmp_path):
    """pearl drafts the same tokens in any order of running, so even the unseeded path is the serial one's."""
    subject = Subject(ROWS["pearl"], tmp_path)
    params = SamplingParams(max_tokens=30, temperature=1.0, seed=9)
    ask = [Request(prompt_token_ids=(5, 6, 7), params=params)]
    serial, beside = (run(engine, ask)[0] for engine in (subject.engine(), overlapped(subject)))
    assert serial.stats.per_step == beside.stats.per_step and serial.seq.output == beside.seq.output


def test_cancelling_in_mid_flight_leaves_no_rows_and_no_state(subject):
    """What runs ahead is cancelled with its request: nothing of it was ever in the target's cache."""
    engine = overlapped(subject, recheck=True)  # every commit is compared with a fresh pass
    seqs = [engine.add(request) for request in requests(WAYS["greedy"])[:3]]
    while len(engine.running) < 3 or not all(seq.prefilled for seq in engine.running):
        engine.step()
    for _ in range(2):
        engine.step()
    engine.cancel(seqs[1])
    runner = engine.parts.target.target
    assert seqs[1].id not in engine.parts.target.cached
    runner.cache.check()
    while engine.has_work:
        engine.step()
    assert not engine.parts.target.cached
    drafter = engine.parts.drafter
    assert not getattr(drafter, "_standing", None) and not getattr(drafter, "_rounds", None)
    assert drafter.inner.model.is_empty


def test_an_error_of_the_draft_surfaces_from_its_thread(subject):
    engine = overlapped(subject)
    engine.add(Request(prompt_token_ids=(1, 2, 3), params=SamplingParams(max_tokens=90)))
    for _ in range(3):
        engine.step()

    def broken(*given):
        raise FloatingPointError("the draft's weights")

    engine.parts.drafter.inner.propose = broken
    with pytest.raises(FloatingPointError, match="the draft's weights"):
        while engine.has_work:  # a pass may be over before anything is drafted beside it
            engine.step()


def test_confirmed_guesses_are_not_drafted_again(tmp_path):
    """run_ahead over a perfect draft: no round waits for it, and every token is drafted once."""
    row = DrafterRow(drafter="run_ahead", side=inside(lambda target, directory: _same(target, directory)))
    subject = Subject(row, tmp_path)
    engine = subject.engine(depth=4)
    asked = []
    inner = engine.parts.drafter.inner
    propose = inner.propose

    def counted(seqs, budgets):
        drafts = propose(seqs, budgets)
        asked.extend(
            (len(seq.tokens) + at) for seq, d in zip(seqs, drafts, strict=True) for at in range(d.num_nodes - 1)
        )
        return drafts

    inner.propose = counted
    outcome = run(engine, [Request(prompt_token_ids=(5, 6, 7), params=SamplingParams(max_tokens=40))])[0]
    assert len(asked) == len(set(asked))
    assert outcome.stats.num_rejections == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", NAMES)
def test_survival_carries_over_pieces_and_rounds(name, temperature, tmp_path):
    """A path ends where all that stands of it falls below the threshold, however small the pieces it was drafted in."""
    options = {"window": 12} if name == "run_ahead" else {"outcomes": 2, "saguaro": 0.5} if name == "ssd" else {}
    subject = Subject(DrafterRow(drafter=name, side=inside(twin), options=options), tmp_path)
    ask = [Request(prompt_token_ids=(5, 6, 7), params=SamplingParams(max_tokens=40, temperature=temperature))]
    depths = []
    for least in (0.95, 0.02):
        events = run(subject.engine(policy=ConstantPolicy(Budget(depth=8, survival=least))), ask)[0].events
        drafted = [event for event in events if event.draft_depth]
        for event in drafted:  # of the accepted nodes, then of the rejected one
            assert prod(event.confidences[:-1]) >= least - 1e-6
            assert len(event.confidences) == event.num_accepted + event.rejected
        always = int(
            name == "ssd"
        )  # one token, however unsure: there is a back-up, and what names an outcome is no guess
        depths.append(sum(event.draft_depth - always for event in drafted))
    assert depths[1] > 10 and depths[1] > 3 * depths[0], depths


def _same(target, directory):
    from outdraft.models.files.load import save_model

    save_model(target, directory / "same")
    return {"model": str(directory / "same")}


@pytest.mark.parametrize("name", NAMES)
def test_an_inner_drafter_that_cannot_go_back_is_refused(name):
    method = find("drafter", name)
    with pytest.raises(CapabilityError, match=f"{name} asks .*'ngram' cannot go back"):
        method.build(method.options(drafter="ngram"), None)


def test_a_draft_model_goes_back_to_what_two_texts_have_in_common(tmp_path):
    """Asked about one future, then another, then the truth: the logits are those of a model that saw only the truth."""
    subject = Subject(ROWS["pearl"], tmp_path)
    engine = subject.engine()
    model = engine.parts.drafter.inner.model
    seq = engine.add(Request(prompt_token_ids=(1, 2, 3, 4, 5), params=SamplingParams(max_tokens=9)))
    model.add(seq.id)
    for future in ([7, 8, 9], [7, 8], [7, 3, 3, 3, 3], [], [9]):
        found = model.read([replace(seq, tokens=[*seq.tokens, *future])])
        model.add(99)
        fresh = model.read([replace(seq, id=99, tokens=[*seq.tokens, *future])])
        model.free(99)
        assert (found - fresh).abs().max() < 1e-9
        assert model.cached_ids(seq.id) == [*seq.tokens, *future]


def test_a_guess_keeps_distributions_and_alternatives_in_step():
    import torch

    from outdraft.core.draft import Draft

    q = torch.eye(5)
    tree = Draft(tokens=torch.tensor([9, 1, 2, 3, 4]), parents=torch.tensor([-1, 0, 0, 1, 1]), q=q)
    guess = first_path(tree)
    assert (guess.tokens, guess.others) == ([1, 3], [[2], [4]])
    assert torch.equal(torch.stack(guess.distributions), q[:2])
    guess.extend(AheadGuess([7], [q[4]], [[]]))
    guess.drop(1)
    assert (
        guess.tokens == [3, 7]
        and torch.equal(torch.stack(guess.distributions), q[[1, 4]])
        and guess.others == [[4], []]
    )


class Silent:
    needs, traits = Needs(), Traits(rewinds=True)


@pytest.mark.parametrize("size", [1, 3, 300])
def test_whole_drafts_and_what_survives_behind_them_are_counted(size):
    """Of whole drafts alone: a token behind a rejected one says nothing."""
    made, seq = AheadDrafter(Silent(), lambda standing, num_proposed: 0, patient=True), sequence([1, 2])
    draft = replace(chain([2] * (1 + size)), continuation=Continuation(token=7, q=None))
    for accepted, token in ((size, 7), (size, 8), (size - 1, 7)):
        verdict = Verdict(tuple(range(1, accepted + 1)), token, accepted == size)
        made.observe([Seen(seq=seq, start=1, num_committed=1 + accepted, draft=draft, verdict=verdict)])
    assert (made.num_reached, made.num_survived) == (2, 1)
