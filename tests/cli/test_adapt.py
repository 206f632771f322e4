"""`outdraft adapt`: requests of a file are learned from in simulated time; what is not theirs is refused."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from outdraft import zoo


@pytest.fixture
def served(tmp_path):
    place = tmp_path / "served.jsonl"

    def write(*, most=4000, count=24):
        lines = [
            {
                "prompt_token_ids": [7, 5 + i, most],
                "token_ids": [9 + (i * j) % 40 for j in range(24)],
                "domain": "forms",
            }
            for i in range(count)
        ]
        place.write_text("".join(json.dumps(one) + "\n" for one in lines))
        return place

    return write


WORDS = ("--learn", "step_tokens=64", "--learn", "depth=2", "--learn", "lr=0.001", "--first", 200)


def test_a_replay_tells_each_request_and_each_verdict(outdraft, served, tmp_path):
    ran = outdraft("adapt", "replay", served(), "--target", "zoo:target", "--out", tmp_path / "out", *WORDS, "--json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert len(told["requests"]) == 24 and told["verdicts"] and told["tokens_a_second"] > 0
    assert all(0 <= one["first"] <= 2 and one["domain"] == "forms" for one in told["requests"])
    assert (tmp_path / "out").exists() == (told["requests"][-1]["version"] > 0)
    ran = outdraft("adapt", "replay", served(count=3), "--target", "zoo:target", *WORDS)
    assert (
        ran.code == 0 and "3 requests: the first draft" in ran.err + ran.out and "version 0 serves" in ran.err + ran.out
    )


def test_a_draft_that_learning_would_not_cure_learns_nothing(outdraft, served, tmp_path):
    draft = shutil.copytree(zoo.path("eagle3"), tmp_path / "draft")
    record, ids = json.loads((draft / "training.json").read_text()), list(range(9, 40))
    said = {"ids": ids, "target": [-9.0] * 30, "draft": [[-9.0] * 30] * 2, "taps": [1, 3, 5], "tensors": {}}
    (draft / "training.json").write_text(json.dumps({**record, "specimen": {**said, "config": ""}}))
    words = (served(), "--target", "zoo:target", "--draft", draft, *WORDS)
    ran = outdraft("adapt", "replay", *words)
    assert ran.code == 0 and "otherwise than then" in ran.out + ran.err and "\n0 steps" in ran.out + ran.err
    ran = outdraft("adapt", "replay", *words, "--learn", "weigh=even")
    assert "otherwise than then" in ran.out + ran.err and "\n0 steps" not in ran.out + ran.err


def test_what_was_trained_for_another_target_is_refused_until_it_follows(outdraft, served, tmp_path):
    draft = tmp_path / "draft"
    draft.mkdir()
    for file in zoo.path("eagle3").iterdir():
        (draft / file.name).write_bytes(file.read_bytes())
    record = json.loads((draft / "training.json").read_text())
    record["target"]["weights"] = "0123456789abcdef"
    (draft / "training.json").write_text(json.dumps(record))
    ran = outdraft("adapt", "replay", served(), "--target", "zoo:target", "--draft", draft, *WORDS)
    assert ran.code == 2 and "was trained for another target" in ran.err and "0123456789abcdef" in ran.err
    assert "outdraft train eagle3 --target" in ran.err
    follows = (
        "--data",
        served(),
        "--out",
        tmp_path / "own",
        "--loop",
        "steps=1",
        "--loop",
        "lr=0",
        "--loop",
        "muon_lr=0",
    )
    ran = outdraft("train", "eagle3", "--target", "zoo:target", "--init", draft, *follows)
    assert ran.code == 0, ran.err
    same = [load_file(place / "model.safetensors") for place in (draft, tmp_path / "own")]
    assert all(torch.equal(one.float(), same[1][name].float()) for name, one in same[0].items())
    ran = outdraft("adapt", "replay", served(), "--target", "zoo:target", "--draft", tmp_path / "own", *WORDS)
    assert ran.code == 0, ran.err


def test_a_draft_is_named_as_elsewhere(outdraft, served):
    ran = outdraft("adapt", "replay", served(count=3), "--target", "zoo:target", "--draft", "zoo:eagle3", *WORDS)
    assert ran.code == 0, ran.err


def test_ids_that_the_target_does_not_know_are_refused(outdraft, served):
    ran = outdraft("adapt", "replay", served(most=4096), "--target", "zoo:target", *WORDS)
    assert ran.code == 2 and "line 1" in ran.err and "vocabulary of 4096" in ran.err
    ran = outdraft("adapt", "replay", "--target", "zoo:target")
    assert ran.code == 2 and "needs requests" in ran.err
