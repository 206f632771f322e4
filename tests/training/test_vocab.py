"""A kind that drafts some of the target's tokens learns which the texts ask for; a kind brings its own losses."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from outdraft import LLM, SamplingParams
from outdraft.core.learner import Moment
from outdraft.core.learner_registry import find_learner
from outdraft.drafters.medusa.net import MedusaConfig, MedusaNet
from outdraft.drafters.shared.networks.load_draft import module_weights
from outdraft.models.files.foreign_heads import drafter_of, recognise
from outdraft.models.files.load import save_model
from outdraft.options.errors import CapabilityError, ConfigError, ModelLoadError
from outdraft.training import corpus
from outdraft.training.corpus import TrainingCorpus
from outdraft.training.course import prepare
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedRows
from outdraft.training.plan import make_plan
from outdraft.weights.safetensors import read_tensors
from tests.helpers.tiny_families import tiny_model


@pytest.mark.parametrize(
    ("kind", "more"), [("eagle", {}), ("kangaroo", {}), ("blockwise", {}), ("medusa", {"own_projections": False})]
)
def test_a_vocabulary_that_config_json_does_not_name_is_refused(kind, more, tmp_path):
    """The target's head has as many rows as are asked for, so no shape shows that the tables are not read."""
    target = tiny_model(vocab=61, layers=3, seed=1, dtype=torch.float32)
    method = find_learner(kind)
    method.new(method.options(draft_vocab_size=5, **more), target, 0).save(tmp_path)
    told = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**told, "draft_vocab_size": 0}))
    with pytest.raises(ModelLoadError, match=r"d2t is of 5 tokens, and config.json .draft_vocab_size. asks for 61"):
        method.load(method.options(), target, tmp_path)


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


BORROWED = {"own_projections": False}
COUNTED = [
    *((kind, {}) for kind in ("mtp", "eagle", "eagle1", "hass", "blockwise", "falcon", "kangaroo", "ctc")),
    *((kind, more) for kind in ("medusa", "hydra", "amphista", "redrafter") for more in ({}, BORROWED)),
]


@pytest.mark.parametrize(("kind", "more"), COUNTED)
def test_a_kind_without_a_head_of_its_own_says_the_texts_tokens_too(kind, more, scene, tmp_path):
    made = course(scene, kind, tmp_path / "run", options={"draft_vocab_size": 5, **more})
    vocab, net, target = torch.tensor([7, 9, 21, 30, 40]), made.learner.module, made.teacher.target
    assert net.vocab.tolist() == vocab.tolist()
    begun = (net.lm_head or net.projections[0]).weight
    assert torch.equal(begun[: len(vocab)], target.head_matrix()[vocab]) and not begun[len(vocab) :].any()
    made.loop.run(until=3)
    made.learner.save(tmp_path / "draft")
    assert "d2t" in read_tensors(tmp_path / "draft" / "model.safetensors")
    assert drafter_of(recognise(tmp_path / "draft")[0]) == drafter_of("eagle1" if kind == "hass" else kind)
    with pytest.raises(ConfigError, match=r"another shape than draft_vocab_size=4"):
        course(scene, kind, tmp_path / "on", init=str(tmp_path / "draft"), options={"draft_vocab_size": 4, **more})
    again = find_learner(kind).load(find_learner(kind).options(**more), target, tmp_path / "draft")
    assert all(torch.equal(one, other) for one, other in zip(net.buffers(), again.module.buffers(), strict=True))
    prompt, seen = {"prompt_token_ids": [50, 51, 52, 50, 51, 52]}, set()
    drafter = {"name": find_learner(kind).drafter or kind, "model": str(tmp_path / "draft")}
    with (
        LLM(str(scene / "target"), dtype="float32", drafter="none") as plain,
        plain.with_speculation(drafter=drafter, num_speculative_tokens=2, policy="fixed") as llm,
    ):
        for settings in ({}, {"temperature": 1.0, "seed": 3}):
            params = SamplingParams(max_tokens=12, **settings)
            pieces = list(llm.stream(prompt, params, return_draft_tree=True))
            written = tuple(token for one in pieces for token in one.token_ids)
            assert written == plain.generate(prompt, params).token_ids
            seen |= {token for one in pieces if one.draft_tree for token in one.draft_tree.tokens[1:]}
    assert seen and seen <= {7, 9, 21, 30, 40}


@pytest.mark.parametrize(
    ("kind", "layout"),
    [("mtp", "speculators"), ("eagle1", "eagle"), ("eagle1", "sglang"), ("medusa", "medusa"), ("hydra", "hydra")],
)
def test_a_layout_of_others_has_no_place_for_a_part_of_the_vocabulary(kind, layout, scene, tmp_path):
    made = course(scene, kind, tmp_path, options={"draft_vocab_size": 5})
    write = next(one.write for one in find_learner(kind).formats if one.name == layout)
    with pytest.raises(CapabilityError, match=r"this draft says 5 of its target's tokens .*without draft_vocab_size"):
        write(made.learner.module, made.teacher.target, "target", tmp_path / "out")


def test_a_kind_that_drafts_the_whole_vocabulary_says_which_kind_does_not(scene, tmp_path):
    asked, kind = {"draft_vocab_size": 3}, "draft_model"
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


def test_states_of_an_inflated_target_reach_its_head_at_their_own_size():
    target = tiny_model(vocab=61, layers=3, seed=1, dtype=torch.float32)
    config = MedusaConfig(
        tap=3, hidden_size=32, vocab_size=61, num_heads=1, draft_vocab_size=4, own_projections=False, scale=2.0
    )
    net, states = MedusaNet(config), torch.randn(3, 32)
    net.borrow(target, torch.float32)
    torch.testing.assert_close(net.logits(2 * states, 0), target.head(states)[:, :4])


@pytest.mark.parametrize("kind", ["mtp", "eagle", "blockwise", "kangaroo"])
def test_rows_of_a_head_that_caps_its_logits_are_refused(kind):
    target, method = tiny_model("gemma2", vocab=61, layers=3, dtype=torch.float32), find_learner(kind)
    assert target.config.logit_cap is not None
    with pytest.raises(CapabilityError, match=r"which caps its logits \(logit_cap=.*without draft_vocab_size"):
        method.new(method.options(draft_vocab_size=4), target, 0)


@pytest.mark.parametrize("kind", ["mtp", "eagle", "eagle1"])
def test_a_vocabulary_lies_where_its_network_does(kind):
    target, method = tiny_model(vocab=61, layers=3, dtype=torch.float32), find_learner(kind)
    net = method.new(method.options(draft_vocab_size=4), target, 0).module
    there = type(net)(net.config, target, torch.float32, torch.device("meta"), torch.tensor([1, 5, 9]))
    assert there.vocab.device.type == there.lm_head.weight.device.type == "meta"


def test_a_pass_reads_the_rows_of_a_borrowed_head():
    target, method = tiny_model(vocab=61, layers=3, dtype=torch.float32), find_learner("mtp")
    few, more = (method.new(method.options(draft_vocab_size=size), target, 0).module for size in (4, 9))
    read = [module_weights(net, native=False).pass_bytes for net in (few, more)]
    assert read[1] - read[0] == 5 * 32 * 4


def test_what_falcon_would_guess_is_compared_in_the_targets_own_ids(monkeypatch):
    target, method = tiny_model(vocab=61, layers=3, dtype=torch.float32), find_learner("falcon")
    learner, seen = method.new(method.options(draft_vocab_size=5), target, 0), []
    learner.module.vocab = torch.tensor([5, 6, 7, 8, 9])
    monkeypatch.setattr("outdraft.drafters.falcon.learn.best_tokens", lambda rows, head, size: torch.tensor(2))
    shown = type(learner)._shown
    monkeypatch.setattr(type(learner), "_shown", lambda *words: seen.append(bool(words[-1].any())) or shown(*words))
    ids = torch.full((1, 14), 7)
    for text in (ids, ids + 1):
        rows = PackedRows(ids=text, documents=0 * text, counts=torch.ones(1, 13, dtype=torch.bool))
        lesson = replace(Teacher(target, learner.taps).lesson(rows), moment=Moment(step=0, steps=4, seed=1))
        learner.look(lesson)
    assert seen == [False, True], "a block of the third token, which is 7, misses nothing in a text of it"
