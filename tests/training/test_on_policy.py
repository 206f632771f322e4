"""Rows on the draft's own policy: which batches, what stands in them, and that the draft learns from them."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from outdraft.drafters.draft_model import learn as draft_model
from outdraft.drafters.early_exit import learn as early_exit
from outdraft.models.files.load import save_model
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import tiny_model
from outdraft.training.course import prepare
from outdraft.training.on_policy import OnPolicy
from outdraft.training.packing import PackedRows
from outdraft.training.plan import make_plan
from outdraft.training.team import Team
from outdraft.training.writing import require_writer
from tests.training.toys import (
    VOCAB,
    Lessons,
    draft_objective,
    rates,
    toy_decoder,
    toy_loop,
    toy_sampler,
    trained_target,
)


def source(counts=None):
    class Source(Lessons):
        def rows(self, step, first, count, length):
            made = super().rows(step, first, count, length)
            if counts is None:
                return made
            return PackedRows(ids=made.ids, documents=made.documents, counts=counts.expand(count, -1).clone())

    return Source(toy_sampler())


def test_a_share_of_the_batches_is_written_on_and_labelled():
    draft, plain = toy_decoder(4), source()
    mixed = OnPolicy(plain, draft, 0.5, 7)
    own = [mixed.rows(step, 0, 3, 17).own for step in range(40)]
    assert 10 < sum(own) < 30
    step = own.index(True)
    made, text = mixed.rows(step, 0, 3, 17), plain.rows(step, 0, 3, 17)
    for ids, before in zip(made.ids, text.ids, strict=True):
        same = int((ids == before).long().cumprod(0).sum())
        assert same < 17, "something was written"
    assert torch.equal(made.counts.sum(1) > 0, torch.ones(3, dtype=torch.bool))
    parts = [mixed.rows(step, i, 1, 17) for i in range(3)]
    assert torch.equal(torch.cat([one.ids for one in parts]), made.ids), "every reader of a row gets the same"
    again = OnPolicy(plain, draft, 0.5, 7).rows(step, 0, 3, 17)
    assert torch.equal(again.ids, made.ids)
    other = OnPolicy(plain, toy_decoder(9), 0.5, 7).rows(step, 0, 3, 17)
    assert not torch.equal(other.ids, made.ids), "it is the draft's text"
    assert not any(OnPolicy(plain, draft, 0.0, 7).rows(step, 0, 1, 17).own for step in range(20))


def test_what_comes_before_the_answer_stays_and_only_what_is_written_counts():
    counts = torch.zeros(1, 16, dtype=torch.bool)
    counts[:, 6:9] = True
    mixed, plain = OnPolicy(source(counts), toy_decoder(4), 1.0, 0), source(counts)
    for step in range(6):
        made, text = mixed.rows(step, 0, 2, 17), plain.rows(step, 0, 2, 17)
        for row in range(2):
            first = int(made.counts[row].nonzero()[0]) + 1
            assert 7 <= first <= 9 and torch.equal(made.ids[row, :first], text.ids[row, :first])
            assert bool(made.counts[row, first - 1 :].all()) and bool((made.documents[row] == 0).all())
    nothing = OnPolicy(source(counts & False), toy_decoder(4), 1.0, 0).rows(0, 0, 2, 17)
    assert torch.equal(nothing.ids, plain.rows(0, 0, 2, 17).ids) and not nothing.counts.any()


def test_behind_an_end_token_nothing_counts():
    draft = toy_decoder(4)
    draft.config = replace(draft.config, eos_ids=tuple(range(VOCAB)))
    made = OnPolicy(source(), draft, 1.0, 0).rows(0, 0, 4, 17)
    for counts, documents in zip(made.counts, made.documents, strict=True):
        at = int(counts.nonzero()[-1]) + 1
        assert not documents[: at + 1].any() and bool(documents[at + 1 :].all()) and at < 14


def test_a_draft_learns_on_its_own_policy(tmp_path):
    target = trained_target()
    small = draft_model.DraftLearning(hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=32)
    learner = draft_model.new(small, target, 5)
    objective = draft_objective(learner, target)
    own = [OnPolicy(Lessons(toy_sampler(3)), learner.module, 1.0, 1).rows(0, 0, 16, 17).ids]
    before, on_own = rates(objective), rates(objective, own[0])
    toy_loop(
        objective, tmp_path / "draft", data=OnPolicy(Lessons(toy_sampler()), learner.module, 1.0, 0), steps=40
    ).run()
    assert rates(objective)[1] > before[1] + 0.1
    after = rates(objective, OnPolicy(Lessons(toy_sampler(3)), learner.module, 1.0, 1).rows(0, 0, 16, 17).ids)
    assert after[0] < on_own[0]


def test_kinds_that_write_nothing_by_themselves_are_refused(tmp_path):
    target = toy_decoder(1)
    head = early_exit.new(early_exit.EarlyExitLearning(exit_layer=1), target, 0)
    with pytest.raises(ConfigError, match=r"on_policy=0\.5 needs a draft that writes texts by itself"):
        require_writer(head, VOCAB, "on_policy=0.5")
    save_model(tiny_model(vocab=61, layers=2, seed=1, dtype=torch.float32), tmp_path / "target")
    ids = np.random.default_rng(0).integers(61, size=(40, 20)).tolist()
    (tmp_path / "x.jsonl").write_text("".join(json.dumps({"token_ids": one}) + "\n" for one in ids))
    given = {
        "target": str(tmp_path / "target"),
        "data": (str(tmp_path / "x.jsonl"),),
        "out": str(tmp_path / "out"),
        "loop": {"seq_len": 16, "batch_tokens": 64},
    }
    for kind, more, says in (
        ("medusa", {"on_policy": 0.5}, "on_policy=0.5 needs a draft"),
        ("eagle", {"loss": {"reinforce": 0.1}}, "loss reinforce needs a draft"),
        (
            "draft_model",
            {"loss": {"reinforce": 0.1}, "on_policy": 0.5, "reinforce": {"reward": "bleu"}},
            "replaces by the draft's",
        ),
        *(
            (
                "draft_model",
                {"loss": {"forward_kl": 1.0, loss: 0.1}, "on_policy": 0.5},
                f"loss {loss} learns the text's own tokens, which on_policy=0.5 replaces",
            )
            for loss in ("cross_entropy", "sequence_kd")
        ),
        ("draft_model", {"reinforce": {"rewrad": "bleu"}}, "did you mean 'reward'"),
        ("draft_model", {"reinforce": {"reward": "blue"}}, "bleu"),
    ):
        with pytest.raises(ConfigError, match=says):
            prepare(make_plan({"kind": kind, **given, **more}), lambda line: None)

    class Two(Team):
        def wait(self):
            pass

    plan = make_plan({"kind": "draft_model", **given, "on_policy": 0.5, "parallel": "fully_shard"})
    with pytest.raises(ConfigError, match="fully_shard splits it: take parallel=ddp"):
        prepare(plan, lambda line: None, Two(size=2))
    plan = make_plan({"kind": "draft_model", **given, "loss": {"forward_kl": 1.0, "reinforce": 0.1}, "on_policy": 0.5})
    course = prepare(plan, lambda line: None)
    course.loop.run(until=2)
    assert course.loop.step == 2 and course.loop.objective.memory["baseline"][-1] == 2
