"""MTP: the logits of the released package at every step, files, weights of steps, which state is read."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from drafters.drafting import draft_behind
from safetensors.torch import load_file, save_file
from torch.nn.functional import embedding, rms_norm

from outdraft.core.learner import Moment
from outdraft.core.learner_registry import find_learner
from outdraft.drafters.mtp.net import load_mtp, save_mtp
from outdraft.models.networks.port import TargetFacts
from outdraft.nn.context import CausalContext
from outdraft.options.errors import CapabilityError, ModelLoadError
from outdraft.testing.tiny import tiny_model
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedRows

PEERS = Path(__file__).parents[1] / "peers/mtp"


def target_of(width=16, vocab=24, norm=lambda h: h, head=lambda h: h):
    facts = TargetFacts(
        vocab_size=vocab,
        hidden_size=width,
        num_layers=6,
        num_kv_heads=1,
        head_dim=8,
        max_len=64,
        device=torch.device("cpu"),
        dtype=torch.float32,
        exact=False,
    )
    return SimpleNamespace(facts=facts, layers=SimpleNamespace(norm=norm, head=head), cache=None)


@torch.no_grad()
def test_every_step_has_the_logits_of_the_released_package():
    """Written once by `tests/peers/mtp_by_speculators.py`, which reads each step's states alone and counts from 0."""
    numbers = load_file(PEERS / "numbers.safetensors")
    net = load_mtp(PEERS, target_of(head=lambda h: h @ numbers["head"].T))
    f, ids, theirs = numbers["states"], numbers["ids"], numbers["logits"]
    count = theirs.shape[1]
    f = f[:count]
    for step, wanted in enumerate(theirs):
        embeds = embedding(ids[step + 1 : step + 1 + count], numbers["embeddings"])
        g = net.run(embeds, f, torch.arange(count), CausalContext(1, count))
        torch.testing.assert_close(net.logits(g), wanted, atol=1e-4, rtol=1e-4)
        f = net.carry(g)
    assert len(theirs) == 3


def test_a_round_trip_is_bit_equal_also_out_of_a_whole_model(tmp_path):
    tensors = load_file(PEERS / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({**json.loads((PEERS / "config.json").read_text()), "eos": 1}))
    save_file({**tensors, "model.embed_tokens.weight": torch.zeros(24, 16)}, tmp_path / "model.safetensors")
    save_mtp(load_mtp(tmp_path, target_of()), tmp_path / "again")
    again = load_file(tmp_path / "again/model.safetensors")
    assert again.keys() == tensors.keys() and all(torch.equal(again[name], tensors[name]) for name in tensors)
    assert json.loads((tmp_path / "again/config.json").read_text())["model_type"] == "qwen3"


def test_it_reads_the_state_behind_the_final_norm_and_each_step_weighs_beta():
    target, method = tiny_model(vocab=31, layers=3, seed=1, dtype=torch.float32), find_learner("mtp")
    learner = method.new(method.options(), target, 0)
    ids = torch.randint(31, (1, 9), generator=torch.Generator().manual_seed(4))
    counts = torch.ones(1, 8, dtype=torch.bool)
    rows = PackedRows(ids=ids, documents=torch.zeros_like(ids), counts=counts, moment=Moment(step=0, steps=9, seed=1))
    lesson = Teacher(target, learner.taps).lesson(rows)
    fused = learner.module.fuse([lesson.taps[tap] for tap in learner.taps])
    torch.testing.assert_close(fused, rms_norm(lesson.states, (32,), target.final_norm.weight, target.final_norm.eps))
    weights = [guess.weight for guess in learner.look(lesson).guesses]
    assert weights == pytest.approx([1, 0.6, 0.36])
    assert [w / sum(weights) for w in weights] == pytest.approx([0.51, 0.31, 0.18], abs=0.005), "as published"


def test_one_layer_drafts_again_and_again_as_it_was_trained_to(tmp_path):
    """Each token of a chain is drawn from what the training step of its depth says about that text."""
    target, method = tiny_model(vocab=31, layers=3, seed=1, dtype=torch.float32), find_learner("mtp")
    learner = method.new(method.options(), target, 0)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in learner.module.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    learner.save(tmp_path)
    assert {name.split(".")[2] for name in load_file(tmp_path / "model.safetensors") if ".layers." in name} == {"0"}
    prompt, depth = [3, 1, 4, 1, 5, 9, 2, 6], 5  # deeper than the three steps that it is trained for
    asked = {"sample": "match", "quantization": "none", "temperature": 1.0}
    draft = draft_behind(target, prompt, "mtp", tmp_path, depth=depth, **asked)
    ids = torch.tensor([[*prompt, *draft.tokens[1:].tolist()]])
    assert ids.shape == (1, len(prompt) + depth)
    rows = PackedRows(ids=ids, documents=torch.zeros_like(ids), counts=torch.ones_like(ids[:, 1:], dtype=torch.bool))
    lesson = replace(Teacher(target, learner.taps).lesson(rows), depth=depth)
    with torch.no_grad():
        guesses = learner.look(lesson).guesses
        for step, guess in enumerate(guesses):
            (at,) = (guess.rows == len(prompt) - 1 + step).nonzero()[:, 0]
            said = guess.head(guess.states[at : at + 1])[0].softmax(-1)
            torch.testing.assert_close(draft.q[step], said, atol=1e-5, rtol=1e-4)
    assert len(guesses) == depth


@pytest.mark.parametrize(
    ("told", "drop", "more", "error", "words"),
    [
        ({}, ("mtp.fc.weight",), {}, ModelLoadError, "no MTP layer"),
        ({}, ("mtp.norm.weight",), {}, ModelLoadError, "mtp.norm.weight' is missing"),
        (
            {},
            (),
            {"mtp.layers.0.mlp.experts.0.up_proj.weight": torch.ones(1)},
            ModelLoadError,
            "none that outdraft knows",
        ),
        ({"model_type": "gpt_neox"}, (), {}, ModelLoadError, "not supported"),
        ({"vocab_size": 25}, (), {}, CapabilityError, "its own target"),
        (
            {"use_sliding_window": True, "sliding_window": 4, "layer_types": ["sliding_attention"]},
            (),
            {},
            ModelLoadError,
            "sliding windows",
        ),
        (
            {"num_nextn_predict_layers": 2},
            (),
            {"mtp.layers.1.input_layernorm.weight": torch.ones(16)},
            ModelLoadError,
            "num_nextn_predict_layers=2 of config.json, and its files hold 2 MTP layers: one for each step",
        ),
    ],
)
def test_files_that_cannot_be_are_refused(told, drop, more, error, words, tmp_path):
    tensors = {**load_file(PEERS / "model.safetensors"), **more}
    (tmp_path / "config.json").write_text(json.dumps({**json.loads((PEERS / "config.json").read_text()), **told}))
    save_file({name: one for name, one in tensors.items() if name not in drop}, tmp_path / "model.safetensors")
    with pytest.raises(error, match=words):
        load_mtp(tmp_path, target_of())


def test_a_file_that_lost_the_layer_itself_is_refused(tmp_path):
    shutil.copy(PEERS / "config.json", tmp_path)
    tensors = load_file(PEERS / "model.safetensors")
    save_file({name: one for name, one in tensors.items() if ".layers." not in name}, tmp_path / "model.safetensors")
    with pytest.raises(ModelLoadError, match=r"'mtp\.layers\.0\..*' is missing"):
        load_mtp(tmp_path, target_of())


@pytest.mark.parametrize("key", ["num_nextn_predict_layers", "mtp_num_hidden_layers"])
def test_a_count_of_layers_that_are_not_there_is_noted(key, tmp_path, caplog):
    """The layer that is there drafts every step."""
    told = json.loads((PEERS / "config.json").read_text())
    shutil.copy(PEERS / "model.safetensors", tmp_path)
    for count in (1, 3):
        caplog.clear()
        (tmp_path / "config.json").write_text(json.dumps({**told, key: count}))
        assert len(load_mtp(tmp_path, target_of()).layers) == 1
        assert (f"{key}=3 in config.json, and the file holds 1" in caplog.text) == (count == 3)
