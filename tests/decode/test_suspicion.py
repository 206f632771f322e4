"""A drafter that is right far less often than it says is reported once; a sound one is not."""

import logging
import shutil
from random import Random

import pytest
from safetensors.torch import load_file, save_file

from outdraft import LLM, SamplingParams, zoo
from outdraft.core.events import StepEvent
from outdraft.decode.suspicion import Suspicion

EAGLE = "eagle"
NOTES = "outdraft.notes"


def watched() -> Suspicion:
    made = Suspicion()
    made.watch([EAGLE])
    return made


def round_of(dice: Random, rate: float, *, depth: int = 4) -> StepEvent:
    """A round whose tokens are accepted with `rate` times the probability that the drafter says."""
    said, accepted = [], 0
    for _ in range(depth):
        said.append(dice.choice((0.02, 0.2, 0.5, 0.9)))
        if dice.random() >= rate * said[-1]:
            break
        accepted += 1
    return StepEvent(seq_id=0, drafted_by=EAGLE, confidences=tuple(said), num_accepted=accepted)


@pytest.mark.parametrize("greedy", [True, False])
def test_a_planted_fault_is_seen(greedy, caplog):
    """A tenth of what it says: in 299 of 300 runs at least, within 1,000 rounds."""
    for number in range(300):
        dice, suspicion = Random(number), watched()
        for _ in range(1000):
            if suspicion.watched:
                suspicion.hear(round_of(dice, 0.1), greedy=greedy)
    assert 299 <= len(caplog.records) <= 300


def test_one_that_is_never_sure_and_never_right_is_seen(caplog):
    suspicion = watched()
    for _ in range(400):
        suspicion.hear(StepEvent(seq_id=0, drafted_by=EAGLE, confidences=(0.001,)), greedy=True)
    (record,) = caplog.records
    assert "0 of 299 (0.0 %)" in record.getMessage()
    for _ in range(400):  # a draw from a flat distribution tells nothing
        fresh = watched()
        fresh.hear(StepEvent(seq_id=0, drafted_by=EAGLE, confidences=(0.001,)), greedy=False)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("rate", [1 / 3, 0.5, 1.0])
@pytest.mark.parametrize("greedy", [True, False])
def test_a_sound_one_is_not_reported_in_ten_thousand_rounds(rate, greedy, caplog):
    for number in range(5):
        dice, suspicion = Random(number), watched()
        for _ in range(10_000):
            if suspicion.watched:
                suspicion.hear(round_of(dice, rate), greedy=greedy)
    assert not caplog.records


def test_one_that_keeps_up_is_heard_no_longer(caplog):
    suspicion = watched()
    for _ in range(8):
        suspicion.hear(StepEvent(seq_id=0, drafted_by=EAGLE, confidences=(0.9,), num_accepted=1), greedy=True)
    assert not suspicion.watched
    suspicion.watch([EAGLE])  # other weights of the same engine
    assert not suspicion.watched and not caplog.records


def test_it_is_logged_once_with_its_name_figures_causes_and_cure(caplog):
    suspicion = watched()
    for _ in range(300):
        suspicion.hear(StepEvent(seq_id=0, drafted_by=EAGLE, confidences=(0.5,)), greedy=True)
    suspicion.hear(StepEvent(seq_id=0, drafted_by="ngram", confidences=(0.5,)), greedy=True)
    (record,) = caplog.records
    told = record.getMessage()
    assert (record.name, record.levelno) == (NOTES, logging.WARNING)
    for words in ("'eagle'", "50 %", "0 of ", "target", "template", "taps", "vocabulary", "train check", "'none'"):
        assert words in told


@pytest.fixture
def of_other_words(tmp_path):
    """The zoo's draft, whose tokens stand seven places further on: a vocabulary that is not the target's."""
    home = tmp_path / "draft"
    shutil.copytree(zoo.path("draft"), home)
    weights = load_file(home / "model.safetensors")
    for name in weights:
        if "embed" in name or "lm_head" in name:
            weights[name] = weights[name].roll(7, 0).contiguous()
    save_file(weights, home / "model.safetensors", metadata={"format": "pt"})
    return home


def test_a_draft_of_another_vocabulary_is_reported_and_the_zoos_own_is_not(of_other_words, caplog):
    prompts = list(zoo.heldout_prompts().values())[:12]
    params = SamplingParams(max_tokens=120, ignore_eos=True)
    plain = LLM("zoo:target", drafter="none")
    wanted = [one.token_ids for one in plain.generate(prompts, params)]
    for place, told in (("zoo:draft", 0), (str(of_other_words), 1)):
        llm = plain.with_speculation(draft_model=place, num_speculative_tokens=1)
        assert [one.token_ids for one in llm.generate(prompts, params)] == wanted
        assert sum("'draft_model'" in one.getMessage() for one in caplog.records) == told
