"""A kind that drafts some of the target's tokens learns which the texts ask for; a kind brings its own losses."""

import json

import numpy as np
import pytest
import torch

from outdraft.core.learner_registry import find_learner
from outdraft.models.files.load import save_model
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import tiny_model
from outdraft.training import corpus
from outdraft.training.corpus import TrainingCorpus
from outdraft.training.course import prepare
from outdraft.training.plan import make_plan


def test_only_what_is_to_be_guessed_counts(monkeypatch):
    monkeypatch.setattr(corpus, "_PIECE", 3)  # several pieces, the last one short
    ids = np.array([5, 5, 2, 5, 7, 2, 2, 1], np.int32)
    counts = np.array([False, True, True, True, False, True, True, True])
    found = TrainingCorpus(ids=ids, counts=counts, starts=np.array([0, 8])).frequencies(9)
    assert found.tolist() == [0, 1, 3, 0, 0, 2, 0, 0, 0]


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    place = tmp_path_factory.mktemp("vocab")
    save_model(tiny_model(vocab=61, layers=3, seed=1, dtype=torch.float32), place / "target")
    texts = [{"prompt_token_ids": [50, 51, 52, 50, 51, 52], "token_ids": [40, 9, 40, 30, 9, 40, 7]}] * 30
    texts = [{**one, "token_ids": [*one["token_ids"], 20 + i % 2]} for i, one in enumerate(texts)]
    (place / "texts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in texts))
    return place


def course(scene, kind, out, **more):
    plan = {
        "kind": kind,
        "target": str(scene / "target"),
        "data": (str(scene / "texts.jsonl"),),
        "out": str(out),
        "held_out": 0.01,
        "loop": {"seq_len": 16, "batch_tokens": 64, "micro_tokens": 16},
        **more,
    }
    return prepare(make_plan(plan), lambda line: None)


def test_a_run_begins_with_the_most_frequent_tokens_of_its_texts(scene, tmp_path):
    made = course(scene, "eagle3", tmp_path, options={"draft_vocab_size": 3})
    counts = made.corpus.frequencies(61)
    assert counts[[50, 51, 52]].sum() == 0, "a prompt's tokens do not count"
    assert counts[40] > counts[9] > counts[7] == counts[30] > 0
    assert made.learner.net.vocab.tolist() == [7, 9, 40]
    made.learner.save(tmp_path / "before")
    again = course(scene, "eagle3", tmp_path / "again", init=str(tmp_path / "before"), options={"draft_vocab_size": 3})
    assert torch.equal(again.learner.net.vocab, made.learner.net.vocab)


@pytest.mark.parametrize("kind", ["medusa", "draft_model", "early_exit", "mtp"])
def test_a_kind_that_drafts_the_whole_vocabulary_says_which_kind_does_not(kind, scene, tmp_path):
    asked = {"draft_vocab_size": 3}
    with pytest.raises(
        ConfigError,
        match=rf"of kind '{kind}'.*'draft_vocab_size' is an option of the kind .*eagle3 or .*p_eagle or .* xpress$",
    ):
        course(scene, kind, tmp_path, options=asked)


def test_a_kind_brings_its_own_losses_and_a_users_come_first(scene, tmp_path):
    kinds = {kind: find_learner(kind) for kind in ("eagle1", "medusa")}
    for kind, method in kinds.items():
        assert course(scene, kind, tmp_path / kind).plan.loss == method.loss
    assert kinds["medusa"].loss == {"forward_kl": 1.0} != kinds["eagle1"].loss
    asked = {"total_variation": 1.0}
    assert course(scene, "eagle1", tmp_path / "asked", loss=asked).plan.loss == asked
