"""Every kind of draft that `adapt=` takes learns what was served, judges it, and is replaced within a text."""

import pytest
import torch

from outdraft import LLM, SamplingParams, zoo
from outdraft.adapt.learning import Learning
from outdraft.core.learner_registry import find_learner, learner_names
from outdraft.engine.between_steps import adopt
from outdraft.options.errors import CapabilityError
from outdraft.training.computing import open_target
from outdraft.training.lessons import Teacher
from outdraft.training.live import LiveDraft
from outdraft.training.record import fingerprint, write_record
from outdraft.training.served import ServedRequest
from outdraft.training.specimens import take_specimen
from tests.training.forms import filled_forms

FIXED = ("ctc", "early_exit", "parallel_sampling")  # their networks cannot be replaced
# What guesses well before it has learned gains slowly, and at first in its best tokens alone.
SLOW = {"kangaroo": {"muon_lr": 0.02, "temperature": 0.0}}
KINDS = [kind for kind in learner_names() if kind not in FIXED]
PROMPT, GREEDY = "The sea was", SamplingParams(max_tokens=32, ignore_eos=True)


@pytest.fixture(scope="module")
def served():
    return [ServedRequest(prompt=one.prompt_token_ids, answer=one.token_ids) for one in filled_forms()]


@pytest.fixture(scope="module")
def plain():
    with LLM("zoo:target", drafter="none") as llm:
        yield llm.generate(PROMPT, GREEDY).token_ids


@pytest.fixture(scope="module")
def target():
    return open_target(zoo.path("target"), "auto", "cpu")


@pytest.fixture
def begun(target, served, tmp_path):
    """Writes an untrained draft, with its record and a specimen."""

    def write(kind):
        method = find_learner(kind)
        learner, ids = method.new(method.options(), target[0], 0), [*served[0].prompt, *served[0].answer]
        learner.save(tmp_path / "begun")
        specimen = take_specimen(learner, Teacher(target[0], learner.taps), tmp_path / "begun", ids).data()
        said = {
            "kind": kind,
            "dtype": "float32",
            "target": fingerprint(target[0]),
            "promises": [],
            "specimen": specimen,
        }
        write_record(tmp_path / "begun", said)
        return tmp_path / "begun"

    return write


def with_draft(kind, place, room):
    drafter = {"name": find_learner(kind).drafter or kind, "model": str(place)}
    adapt = {"room": str(room), "learner": False}
    return LLM("zoo:target", drafter=drafter, num_speculative_tokens=3, adapt=adapt)


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_and_changes_places_in_the_midst_of_a_text(kind, target, served, plain, begun, tmp_path):
    told = {"lr": 3e-3, "muon_lr": 5e-3, **SLOW.get(kind, {})}
    settings = Learning(**told, step_tokens=512, held_out=0.25, depth=3, epochs=1.0)
    live = LiveDraft(target, begun(kind), settings)
    held = [one for one in served if live.add(one)]
    losses = [live.learn() for _ in range(24 if kind in SLOW else 6)]
    before, after = live.judge(held, (live.serving, live.weights()))
    assert losses[-1] < losses[0] and sum(after) > 1.1 * sum(before) >= 0
    assert live.judge(held, (live.serving,)) == [pytest.approx(before)], "what serves has not changed"
    live.write(live.weights(), tmp_path / "learned")
    again = LiveDraft(target, tmp_path / "learned", settings)
    assert again.kind == kind and not any(one.evidence.is_alarm for one in again.findings())
    saved, known = again.weights(), live.weights()  # in the target's number format
    assert all(torch.allclose(one, known[name], rtol=0.01, atol=1e-6) for name, one in saved.items())
    with with_draft(kind, tmp_path / "begun", tmp_path / "room") as llm:
        stream = llm.stream(PROMPT, GREEDY)
        chunks = [next(stream), next(stream)]
        assert adopt(llm, tmp_path / "learned") == 1
        chunks += stream
        later = llm.generate(PROMPT, GREEDY)
    assert tuple(token for one in chunks for token in one.token_ids) == later.token_ids == plain
    assert set(later.stats.rounds_by_version) == {1}


@pytest.mark.parametrize("drafter", [*FIXED, "sequoia"])
def test_a_drafter_whose_network_stays_is_refused_by_name(drafter, begun, tmp_path):
    described = {"name": drafter, "model": str(begun(drafter) if drafter in FIXED else zoo.path("draft"))}
    with pytest.raises(CapabilityError, match=rf"here are 0 \(of {drafter}\): name one of a kind that learns"):
        LLM("zoo:target", drafter=described, adapt={"room": str(tmp_path / "room"), "learner": False})


def test_a_draft_without_a_record_is_refused(begun, tmp_path):
    place = begun("medusa")
    (place / "training.json").unlink()
    with pytest.raises(CapabilityError, match=r"holds no training\.json: train it on"):
        with_draft("medusa", place, tmp_path / "room")
