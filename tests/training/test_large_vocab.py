"""A vocabulary of 151,936: three kinds train for such a target without a change, and logits are held by the chunk."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from outdraft.cli.main import main
from outdraft.core.learner import Guess, Outlook
from outdraft.core.learner_registry import find_learner
from outdraft.learn.compare import CHUNK, accepted, compare
from outdraft.learn.losses import forward_kl
from outdraft.models.files.load import find_architecture, load_model, save_model
from outdraft.testing.tiny import random_decoder
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedRows

VOCAB = 151_936
CONFIG = Path(__file__).parent / "fixtures/vocab_151936.json"


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    place = tmp_path_factory.mktemp("target")
    raw = json.loads(CONFIG.read_text())
    save_model(random_decoder(find_architecture(raw).read(raw), dtype=torch.float32), place)
    ids = np.random.default_rng(0).integers(VOCAB, size=(12, 24)).tolist()
    (place / "x.jsonl").write_text("".join(json.dumps({"token_ids": one}) + "\n" for one in ids))
    return place


@pytest.mark.parametrize(
    "kind", ["draft_model", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("medusa", "eagle"))]
)
def test_a_draft_trains_end_to_end(target, tmp_path, kind):
    words = [
        "train",
        kind,
        "--target",
        target,
        "--data",
        target / "x.jsonl",
        "--out",
        tmp_path,
        "--depth",
        2,
        "--loop",
        "seq_len=8",
        "--loop",
        "batch_tokens=16",
        "--loop",
        "micro_tokens=16",
        "--loop",
        "steps=2",
        "--loop",
        "muon_lr=0",
        *(("--options", "num_heads=1") if kind == "medusa" else ()),
    ]
    assert main([str(word) for word in words]) == 0
    told = json.loads((tmp_path / "training.json").read_text())
    assert told["target"]["vocab_size"] == VOCAB and told["steps"] == 2 and told["promises"]


def test_logits_are_held_by_the_chunk_and_not_by_the_rows(target):
    """The largest tensor of logits that is made, forward or backward, in training and in an exam."""
    model = load_model(target, torch.float32)
    learner = find_learner("draft_model").new(find_learner("draft_model").options(), model, 0)
    teacher = Teacher(model, ())
    ids = torch.randint(VOCAB, (4, 33), generator=torch.Generator().manual_seed(0))
    counts = torch.ones(4, 32, dtype=torch.bool)
    lesson = teacher.lesson(PackedRows(ids=ids, documents=torch.zeros_like(ids), counts=counts))
    (guess,) = learner.look(lesson).guesses
    sizes = []

    def watched(head):
        def call(states):
            logits = head(states)
            sizes.append(logits.numel())
            return logits

        return call

    one = Outlook(guesses=[Guess(states=guess.states, head=watched(guess.head), rows=guess.rows)])
    for chunk in (CHUNK, 4 * VOCAB):
        sizes.clear()
        compare(one, lesson, watched(teacher.logits), forward_kl, chunk=chunk, held=0).total.backward(retain_graph=True)
        accepted(one, lesson, watched(teacher.logits), 1.0, chunk=chunk)
        assert max(sizes) <= chunk < 128 * VOCAB and sum(sizes) > 6 * 128 * VOCAB * 0.9


def test_the_peak_of_saved_tensors_does_not_grow_with_the_rows(target):
    """What autograd keeps between the passes: states, not logits."""
    model = load_model(target, torch.float32)
    learner = find_learner("draft_model").new(find_learner("draft_model").options(), model, 0)
    teacher, kept = Teacher(model, ()), []
    ids = torch.randint(VOCAB, (2, 33), generator=torch.Generator().manual_seed(0))
    rows = PackedRows(ids=ids, documents=torch.zeros_like(ids), counts=torch.ones(2, 32, dtype=torch.bool))
    lesson = teacher.lesson(rows)
    outlook = learner.look(lesson)

    def pack(one):
        kept.append(one.numel())
        return one

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one):
        compare(outlook, lesson, teacher.logits, forward_kl, held=0)
    assert kept and sum(kept) < VOCAB, "64 rows of logits would be 64 vocabularies"
