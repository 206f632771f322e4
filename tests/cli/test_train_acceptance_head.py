"""`outdraft train acceptance_head`: beside a draft, stopped and resumed with the same bits, and then in use."""

import json

import pytest
import torch
from safetensors.torch import load_file

from outdraft.learn.save import load_state
from outdraft.models.files.load import save_model
from outdraft.testing.tiny import tiny_model
from outdraft.training.course import prepare
from outdraft.training.plan import make_plan

LOOP = ("seq_len=24", "batch_tokens=96", "micro_tokens=48", "eval_every=3", "save_every=1", "steps=8")
VOCAB = 257


@pytest.fixture(scope="module")
def scene(tiny, tmp_path_factory):
    place = tmp_path_factory.mktemp("heads")
    (place / "target").symlink_to(tiny)
    save_model(tiny_model(vocab=VOCAB, layers=1, seed=5, dtype=torch.float32), place / "draft")
    texts = [[(i * 7 + j * j) % VOCAB for j in range(30)] for i in range(40)]
    (place / "texts.jsonl").write_text("".join(json.dumps({"token_ids": ids}) + "\n" for ids in texts))
    return place


def words(scene, out, *more):
    given = ("--target", scene / "target", "--data", scene / "texts.jsonl", "--out", out, *more)
    loop = [word for one in LOOP for word in ("--loop", one)]
    return ("train", "acceptance_head", *given, *loop, "--options", f"draft={scene / 'draft'}")


def test_a_head_is_trained_beside_its_draft_and_used(outdraft, scene):
    out = scene / "draft/acceptance_head"
    dry = outdraft(*words(scene, out), "--dry-run", "--json")
    assert dry.code == 0, dry.err
    assert json.loads(dry.out)["tensors"]["out.weight"] == [1, 32]
    ran = outdraft(*words(scene, out), "--json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert told["promises"] == [] and told["speedup"] is None and told["best"] < 0
    assert "AUC" in ran.err and "train check" not in ran.err
    log = [json.loads(line) for line in (out / "run/log.jsonl").read_text().splitlines()]
    assert all(0 <= one["auc"] <= 1 and one["score"] == -one["held_out_loss"] for one in log if "auc" in one)
    assert load_file(out / "model.safetensors")["out.weight"].abs().sum() > 0
    checked = outdraft("train", "check", out, "--target", scene / "target")
    assert checked.code == 2 and "nothing to check" in checked.err
    ask = ("generate", "one two", "--model", scene / "target", "--max-tokens", 24, "--ignore-eos", "--json")
    plain = outdraft(*ask, "--drafter", "none")
    wrote = outdraft(*ask, "--drafter", "specdec_plus_plus", "--draft-model", scene / "draft")
    assert wrote.code == 0, wrote.err
    said, alone = json.loads(wrote.out), json.loads(plain.out)
    assert said["config"]["policy"]["name"] == "acceptance_head", said["config"]
    assert said["token_ids"] == alone["token_ids"] and len(said["token_ids"]) == 24
    pair = outdraft(
        *ask, "--drafter", "specdec_plus_plus", "--draft-model", scene / "draft", "--policy-options", "threshold=0"
    )
    drafted = json.loads(pair.out)["metrics"]["speculative_decoding"]["per_step_drafted"]
    assert max(drafted) == 2, pair.err  # any doubt ends a chain, on the native kernels too
    lookup = outdraft(*ask, "--drafter", "ngram", "--policy", "acceptance_head")
    assert lookup.code == 2 and "hands none over" in lookup.err and lookup.err.count("\n") < 4, lookup.err


def test_a_run_that_was_stopped_ends_with_the_same_bits(scene):
    def course(out):
        given = dict(one.split("=") for one in LOOP)
        return prepare(
            make_plan(
                {
                    "kind": "acceptance_head",
                    "target": str(scene / "target"),
                    "data": (str(scene / "texts.jsonl"),),
                    "out": str(scene / out),
                    "options": {"draft": str(scene / "draft")},
                    "loop": {key: int(value) for key, value in given.items()},
                }
            ),
            lambda line: None,
        )

    whole = course("whole")
    whole.loop.run()
    course("parts").loop.run(until=3)
    for until in (5, 8):
        again = course("parts")
        again.loop.resume()
        assert again.loop.step in (3, 5)
        again.loop.run(until=until)
    bits = [load_state(scene / out / "run/checkpoint.pt").weights for out in ("whole", "parts")]
    assert bits[0].keys() == bits[1].keys() and all((bits[0][name] == one).all() for name, one in bits[1].items())
    assert any(one.abs().sum() > 0 for one in bits[0].values())


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("draft=nowhere/at-all", "nowhere"),
        ("kind=medusa", "medusa"),
        ("rejection_weight=0", "rejection_weight"),
        ("drafts=x", "did you mean 'draft'"),
    ],
)
def test_what_cannot_be_is_one_line(outdraft, scene, tmp_path, option, says):
    ran = outdraft(*words(scene, tmp_path / "out"), "--options", option)
    assert ran.code == 2 and says in ran.err and ran.err.count("\n") < 3, ran.err
