"""`outdraft train layerskip` and `cllm`: changes and a changed target are written, and that pair is lossless."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from outdraft import LLM, SamplingParams
from outdraft.models.files.load import load_model, save_model
from outdraft.models.remake.lora import load_lora, merged
from outdraft.testing.tiny import random_decoder, tiny_config
from outdraft.training.record import fingerprint, read_record

LOOP = ("--loop", "seq_len=48", "--loop", "batch_tokens=96", "--loop", "micro_tokens=48", "--loop", "eval_every=10")
LOOP += ("--loop", "warmup=1", "--tokens", "3000")
KINDS = {
    "layerskip": ("early_exit", ("exit_layer=2", "exit_scale=2.0"), {"exit_layer": 2}),
    "cllm": ("jacobi", ("window=4", "windows=3"), {}),
}


@pytest.fixture
def deep(tiny, tmp_path):
    """The tiny model's tokenizer, and three layers."""
    place = tmp_path / "deep"
    save_model(random_decoder(tiny_config(vocab=257, layers=3, inner=64), seed=3, dtype=torch.float32), place)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny / name, place)
    return place


@pytest.fixture
def texts(deep, outdraft, tmp_path):
    """What it writes itself behind short prompts."""
    prompts, path = tmp_path / "prompts.jsonl", tmp_path / "texts.jsonl"
    words = [f"the {a} {b} sat" for a in ("cat", "dog", "fox", "hen", "cow") for b in ("red", "old", "fat", "shy")]
    prompts.write_text("".join(json.dumps({"prompt": word, "response": ""}) + "\n" for word in words))
    ran = outdraft("train", "answers", "--target", deep, "--data", prompts, "--out", path, "--max-tokens", 32)
    assert ran.code == 0, ran.err
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_trained_pair_is_lossless_as_the_changed_target(kind, outdraft, deep, texts, tmp_path, monkeypatch):
    (drafter, options, given), out = KINDS[kind], tmp_path / "out"
    before = {path.name: path.read_bytes() for path in deep.iterdir() if path.is_file()}
    words = ("train", kind, "--target", deep, "--data", texts, "--out", out, *LOOP, "--loop", "lr=0.01")
    asked = [word for one in options for word in ("--options", one)]
    ran = outdraft(*words, "--loop", "muon_lr=0.005", *asked)
    assert ran.code == 0, ran.err
    assert f"--model {out / 'target'} --drafter {drafter}" in ran.err and "nats a token before" in ran.err
    told = json.loads((out / "training.json").read_text())
    assert told["modifies_target"] is True and read_record(out).modifies_target
    assert set(told["target_nats"]) == {"before", "after"} and told["target_nats"]["before"] > 0
    assert told["original_target"] == fingerprint(load_model(deep, told["dtype"])) != told["target"]
    assert told["target"] == fingerprint(load_model(out / "target", told["dtype"]))
    assert {path.name: path.read_bytes() for path in deep.iterdir() if path.is_file()} == before
    original = load_model(deep, told["dtype"])
    again = merged(original, load_lora(out, original))
    assert fingerprint(again) == told["target"]  # the changes alone are enough
    assert json.loads((out / "lora/adapter_config.json").read_text())["base_model_name_or_path"] == str(deep)
    assert outdraft("merge", deep, "--lora", out / "lora", "--out", tmp_path / "again").code == 0
    there, here = (load_file(place / "model.safetensors") for place in (out / "target", tmp_path / "again"))
    torch.testing.assert_close(there, here)
    texts_of = {}
    for name, model, drafts in (
        ("changed", out / "target", "none"),
        ("pair", out / "target", {"name": drafter, **given}),
        ("original", deep, "none"),
    ):
        llm = LLM(model, drafter=drafts, num_speculative_tokens=4)
        texts_of[name] = [
            one.token_ids
            for settings in (SamplingParams(max_tokens=24), SamplingParams(max_tokens=24, temperature=1.0, seed=5))
            for one in llm.generate(["the cat", "a hen and a"], settings)
        ]
    assert texts_of["pair"] == texts_of["changed"] != texts_of["original"]
    refused = outdraft("train", "check", out, "--target", deep)
    if told["promises"]:
        assert refused.code == 2 and f"--target {out / 'target'}" in refused.err
        monkeypatch.setattr("outdraft.training.check.LEAST_ROUNDS", 10)
        checked = outdraft("train", "check", out, "--target", out / "target", "--json")
        assert checked.code == 0, checked.out + checked.err
        assert f"next: outdraft train check {out} --target {out / 'target'}" in ran.err
    else:
        assert refused.code == 2 and kind == "cllm"


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_that_cannot_bear_it_is_refused_by_name(kind, outdraft, deep, texts, tmp_path):
    rounded = tmp_path / "rounded"
    assert (made := outdraft("quantize", deep, "--out", rounded)).code == 0, made.err
    ran = outdraft("train", kind, "--target", rounded, "--data", texts, "--out", tmp_path / "out", *LOOP)
    assert ran.code == 2 and str(rounded) in ran.err and "rounded" in ran.err, ran.err
    assert not (tmp_path / "out" / "target").exists()


def test_kinds_are_known_with_their_near_misses(outdraft, tmp_path):
    ran = outdraft("train", "layerskp", "--target", tmp_path, "--data", tmp_path, "--out", tmp_path / "out")
    assert ran.code == 2 and "layerskip" in ran.err and "cllm" in ran.err
