"""What a draft's acceptance is promised about: answers of held-out examples, as many as a check needs rounds of."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from outdraft.models.files.load import save_model
from outdraft.testing.tiny import tiny_model
from outdraft.training.check import Checked
from outdraft.training.corpus import TrainingCorpus
from outdraft.training.course import prepare
from outdraft.training.plan import make_plan
from outdraft.training.promise import LEAST_ROUNDS, beginnings, promises
from outdraft.training.record import read_record, write_record
from outdraft.training.train import make_record
from outdraft.training.walk import Walk

VOCAB, PER_TEXT = 61, 63.0


def corpus(*examples):
    """Each a list of (ids, whether they count)."""
    ids = [[one for part, _ in parts for one in part] for parts in examples]
    counts = [[counts for part, counts in parts for _ in part] for parts in examples]
    return TrainingCorpus(
        ids=np.concatenate(ids).astype(np.int32), counts=np.concatenate(counts), starts=np.cumsum([0, *map(len, ids)])
    )


def test_a_chat_begins_at_its_answers_and_not_in_the_template():
    """A system text of 40 tokens is the same in all; the second answers come when all first ones have come."""
    header = list(range(40))
    chats = [[([*header, 50 + i], False), ([7, 8], True), ([9], False), ([7] * i + [8], True)] for i in range(3)]
    found = list(beginnings(corpus(*chats), 256))
    assert found[:3] == [(*header, 50), (*header, 51), (*header, 52)]
    assert found[3:] == [(*header, 50 + i, 7, 8, 9) for i in range(3)]
    assert next(beginnings(corpus(*chats), 5)) == (36, 37, 38, 39, 50), "the last tokens before the answer"


def test_a_text_begins_with_its_first_tokens_and_a_long_one_again():
    found = list(beginnings(corpus([(list(range(200)), True)], [([5, 6, 7], True)], [([1], True), ([2], False)]), 40))
    assert found == [tuple(range(32)), (5, 6), tuple(range(120, 160))], "where something follows that is to be guessed"


def test_no_prompt_comes_twice():
    alike = [([1, 2], False), ([3, 4], True)]
    assert list(beginnings(corpus(alike, alike, [([1], False), ([5], True)]), 8)) == [(1, 2), (1,)]


@pytest.fixture
def course(tmp_path):
    """Two tokens of prompt, 38 to guess; 600 examples are held out."""
    save_model(tiny_model(vocab=VOCAB, layers=2, seed=1, dtype=torch.float32), tmp_path / "target")
    for name, count in (("texts", 4), ("valid", 600)):
        lines = [{"prompt_token_ids": [i % VOCAB, i // VOCAB], "token_ids": list(range(38))} for i in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    plan = {
        "kind": "medusa",
        "target": str(tmp_path / "target"),
        "data": (str(tmp_path / "texts.jsonl"),),
        "valid": (str(tmp_path / "valid.jsonl"),),
        "out": str(tmp_path / "out"),
        "loop": {"seq_len": 16, "batch_tokens": 32, "micro_tokens": 32, "steps": 1},
    }
    return prepare(make_plan(plan), lambda line: None)


def drafting(monkeypatch, tau):
    """As if every text had so many tokens a pass; what was asked for."""
    asked = []

    def promise(learner, teacher, target, terms, *, seed=0, dtype=None):
        asked.append((terms, seed))
        n = len(terms.prompts)
        return Walk(tokens=(PER_TEXT,) * n, rounds=(PER_TEXT / tau,) * n, reached=(1.0,), kept=(1.0,))

    monkeypatch.setattr("outdraft.training.promise.promise", promise)
    return asked


def checked(one, tau):
    n = len(one.terms.prompts)
    measured = Walk(tokens=(PER_TEXT,) * n, rounds=(PER_TEXT / tau,) * n, reached=(1.0,), kept=(1.0,))
    return Checked(promise=one, measured=measured)


@pytest.mark.parametrize(("tau", "texts"), [(2.0, 256), (4.0, 350), (6.5, 568)])
def test_a_good_draft_is_promised_about_enough_texts_to_be_confirmed(course, monkeypatch, tau, texts):
    asked = drafting(monkeypatch, tau)
    for one in promises(course):
        assert len(set(one.terms.prompts)) == len(one.terms.prompts) == texts and one.tau == pytest.approx(tau)
        assert sum(checked(one, tau).measured.rounds) >= LEAST_ROUNDS and checked(one, tau).outcome == "holds"
        assert not one.exhausted
    assert [seed for _, seed in asked] == ([0, 256] * 2 if texts > 256 else [0] * 2), "other coins for the others"


def test_more_examples_are_asked_for_where_there_are_no_more(course, monkeypatch):
    drafting(monkeypatch, 16.0)
    course.learner.save(Path(course.plan.out))
    write_record(course.loop.run_dir, make_record(course, promises(course)))
    for one in read_record(course.loop.run_dir).promises:
        assert one.exhausted and len(one.terms.prompts) == 600
        assert "a check wants 5000: hold out more examples)" in checked(one, 16.0).line
    for one in promises(course, texts=100):  # as a trial asks for
        assert not one.exhausted and len(one.terms.prompts) == 100
        assert checked(one, 16.0).line.endswith("rounds; a check wants 5000)")


def test_a_short_context_has_room_for_prompt_and_text(course, monkeypatch):
    asked = drafting(monkeypatch, 2.0)
    promises(course)
    most = course.teacher.target.config.max_len
    terms = asked[0][0]
    assert max(map(len, terms.prompts)) + terms.max_tokens < most
