"""`outdraft train` with a target that learns along: saved whole, promised about, and checked as what it has become."""

import json
import shutil

import pytest

from outdraft.models.files.load import load_model
from outdraft.training.record import fingerprint, read_record

LOOP = ("--loop", "seq_len=48", "--loop", "batch_tokens=96", "--loop", "micro_tokens=48", "--loop", "eval_every=4")


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.jsonl"
    words = [f"the {a} {b} sat" for a in ("cat", "dog", "fox", "hen", "cow") for b in ("red", "old", "fat", "shy")]
    path.write_text("".join(json.dumps({"prompt": word, "response": " on the mat. " * 3}) + "\n" for word in words))
    return path


def test_a_target_that_learned_along_is_what_is_promised_about(outdraft, tiny, texts, tmp_path, monkeypatch):
    out = tmp_path / "out"
    words = ("train", "medusa", "--target", tiny, "--data", texts, "--out", out, *LOOP, "--loop", "lr=0.01")
    ran = outdraft(*words, "--options", "joint=true", "--options", "num_heads=2", "--options", "distil=false", "--json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert "modifies_target" in ran.err and "nats a token before" in ran.err
    assert told["modifies_target"] is True and read_record(out).modifies_target
    assert told["target_nats"]["after"] < told["target_nats"]["before"]  # it learned the text's own tokens
    assert told["original_target"] == fingerprint(load_model(tiny, told["dtype"])) != told["target"]
    assert told["target"] == fingerprint(load_model(out / "target", told["dtype"]))
    assert (out / "target" / "tokenizer.json").read_bytes() == (tiny / "tokenizer.json").read_bytes()
    refused = outdraft("train", "check", out, "--target", tiny)
    assert refused.code == 2 and f"--target {out / 'target'}" in refused.err
    ask = ("generate", "the cat", "--max-tokens", 6, "--drafter", "medusa", "--drafter-options", f"model={out}")
    other = outdraft(*ask, "--model", tiny)
    assert other.code == 2 and str(out / "target") in other.err and str(tiny) in other.err, other.err
    moved = tmp_path / "moved"
    shutil.copytree(out / "target", moved)
    for target in (out / "target", moved):
        assert (wrote := outdraft(*ask, "--model", target)).code == 0, wrote.err
    monkeypatch.setattr("outdraft.training.check.LEAST_ROUNDS", 10)
    checked = outdraft("train", "check", out, "--target", out / "target", "--json")
    assert checked.code == 0, checked.out + checked.err
    assert [one["holds"] for one in json.loads(checked.out)] == [True, True]
