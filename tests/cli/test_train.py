"""`outdraft train`: answers, a dry run, a run, its resumption and its check; errors are one line."""

import json

import pytest


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "prompts.jsonl"
    words = [f"the {a} {b} sat" for a in ("cat", "dog", "fox", "hen", "cow") for b in ("red", "old", "fat", "shy")]
    path.write_text("".join(json.dumps({"prompt": word, "response": " on the mat. " * 3}) + "\n" for word in words))
    return path


LOOP = ("--loop", "seq_len=48", "--loop", "batch_tokens=96", "--loop", "micro_tokens=48", "--loop", "eval_every=2")


def test_from_answers_to_a_promise_that_holds(outdraft, tiny, texts, tmp_path, monkeypatch):
    monkeypatch.setattr("outdraft.training.promise._MAX_TOKENS", 24)
    answers, out = tmp_path / "answers.jsonl", tmp_path / "out"
    ran = outdraft(
        "train", "answers", "--target", tiny, "--data", texts, "--out", answers, "--max-tokens", 12, "--json"
    )
    told = json.loads(ran.out)
    assert ran.code == 0 and told["read"] == 20 == told["done"] + told["failed"] + told["skipped"]
    words = ("train", "draft_model", "--target", tiny, "--data", answers, "--out", out, *LOOP, "--plan")
    own = outdraft(*words[:-1], "--loss", "sequence_kd=1", "--dry-run", "--json")
    assert own.code == 0, own.err
    (tmp_path / "plan.toml").write_text(
        "depth = 3\nheld_out = 0.3\n[loop]\nlr = 0.002\n[loss]\ntotal_variation = 1.0\n"
    )
    dry = outdraft(*words, tmp_path / "plan.toml", "--dry-run", "--json")
    told = json.loads(dry.out)
    assert dry.code == 0, dry.err
    assert told["bytes"] > 0 and told["seconds_a_step"] > 0 and told["tensors"] and (out / "config.json").exists()
    ran = outdraft(*words, tmp_path / "plan.toml", "--json")
    told = json.loads(ran.out)
    assert ran.code == 0, ran.err
    assert told["plan"]["depth"] == 3 and told["plan"]["loss"] == {"total_variation": 1.0}
    assert told["plan"]["loop"]["lr"] == 0.002 and told["plan"]["loop"]["seq_len"] == 48
    assert len(told["promises"]) == 2 and told["steps"] > 0 and "held-out" in ran.err
    assert json.loads((out / "training.json").read_text()) == told
    few = outdraft("train", "check", out, "--target", tiny)
    assert few.code == 3 and few.out.count("cannot say") == 2 and "wants 5000" in few.out, few.out
    monkeypatch.setattr("outdraft.training.check.LEAST_ROUNDS", 10)
    checked = outdraft("train", "check", out, "--target", tiny, "--json")
    found = json.loads(checked.out)
    assert checked.code == 0, found
    assert [one["holds"] for one in found] == [True, True] and found[0]["temperature"] == 0
    weights = (out / "model.safetensors").read_bytes()
    again = outdraft(*words, tmp_path / "plan.toml")
    assert again.code == 2 and "--resume" in again.err
    dry = outdraft(*words, tmp_path / "plan.toml", "--dry-run")
    assert dry.code == 2 and "over it" in dry.err and (out / "model.safetensors").read_bytes() == weights
    other = outdraft(*words, tmp_path / "plan.toml", "--resume", "--seed", 5)
    assert other.code == 2 and "seed=0, not 5" in other.err
    assert outdraft(*words, tmp_path / "plan.toml", "--resume").code == 0
    told["promises"][0]["tau"] += 2
    told["promises"][0]["standard_error"] = 0.0
    (out / "training.json").write_text(json.dumps(told))
    broken = outdraft("train", "check", out, "--target", tiny)
    monkeypatch.undo()
    assert outdraft("train", "check", out, "--target", tiny).code == 1  # that so many are too few does not hide it
    assert broken.code == 1 and "BROKEN" in broken.out and "holds" in broken.out
    specimen = {**told["specimen"], "draft": [[-1.0] * len(one) for one in told["specimen"]["draft"]]}
    (out / "training.json").write_text(json.dumps({**told, "specimen": specimen}))
    wired = outdraft("train", "check", out, "--target", tiny)
    assert wired.code == 1 and "BROKEN  The draft says of its record's text" in wired.out
    wired = outdraft("train", "check", out, "--target", tiny, "--json")
    assert wired.code == 1 and [one["kind"] for one in json.loads(wired.out)] == ["mismatch"]
    (out / "training.json").write_text(json.dumps({**told, "promises": []}))
    nothing = outdraft("train", "check", out, "--target", tiny)
    assert nothing.code == 2 and "before its acceptance was measured" in nothing.err


@pytest.mark.parametrize(
    ("bounds", "says"),
    [
        (("seconds=60",), "steps of 96 tokens for 60 seconds"),
        (("seconds=60", "steps=3"), "at most 3 steps of 96 tokens for 60 seconds"),
    ],
)
def test_a_run_of_so_many_seconds_says_so(outdraft, tiny, texts, tmp_path, bounds, says):
    loop = [word for one in bounds for word in ("--loop", one)]
    words = ("train", "early_exit", "--target", tiny, "--data", texts, "--out", tmp_path / "out", *LOOP, *loop)
    ran = outdraft(*words, "--dry-run")
    assert ran.code == 0 and f"skipped; {says}\n" in ran.err and "steps, for 60 seconds at most" in ran.err, ran.err
    assert str(1 << 30) not in ran.err
    told = json.loads(outdraft(*words, "--dry-run", "--json").out)
    assert told["hours"] < 0.02 and 0 < told["steps"] <= (3 if "steps=3" in bounds else 1 << 20)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "needs a kind"),
        (("eagel",), "did you mean 'eagle'"),
        (("eagle", "HERE"), "takes no second word"),
        (("eagle", "--target", "TINY"), "out missing"),
        (("eagle", "--target", "TINY", "--out", "HERE"), "nothing to learn from"),
        (("eagle", "--target", "TINY", "--out", "HERE", "--data", "HERE/none.jsonl"), "no such file"),
        (("eagle", "--target", "TINY", "--out", "HERE", "--data", "TEXTS", "--options", "num_step=2"), "num_steps"),
        (("eagle", "--target", "TINY", "--out", "HERE", "--data", "TEXTS", "--loss", "kl=1"), "is unknown"),
        (("eagle", "--target", "TINY", "--out", "HERE", "--data", "TEXTS", "--loop", "lrr=1"), "did you mean 'lr'"),
        (
            ("eagle", "--target", "TINY", "--out", "HERE", "--data", "TEXTS", "--loss", "sequence_kd=1"),
            "sequence_kd learns",
        ),
        (
            ("eagle", "--target", "TINY", "--out", "HERE", "--data", "TEXTS", "--loss", "smooth_l1=1"),
            "smooth_l1 compares",
        ),
        (("eagle", "--target", "TINY", "--out", "HERE", "--data", "TEXTS", "--init", "TINY"), "EAGLE network"),
        (("eagle", "--target", "TINY", "--out", "HERE", "--data", "TEXTS", "--resume"), "nothing to resume"),
        (("eagle", "--target", "TINY", "--out", "TINY", "--data", "TEXTS"), "that the training reads from"),
        (("eagle", "--target", "TINY", "--out", "HERE", "--data", "TEXTS", "--loss", "forward_kl=-1"), "at least 0"),
        (("eagle", "--target", "TINY", "--out", "HERE", "--data", "TEXTS", "--dtype", "float16"), "overflow"),
        (("eagle", "--target", "TINY", "--out", "HERE", "--data", "TEXTS", "--temperature", "1"), "is for answers"),
        (("json:loads", "--target", "TINY", "--out", "HERE"), "must be a LearnMethod"),
        ((":LEARN", "--target", "TINY", "--out", "HERE"), "cannot be imported"),
        (("answers", "--target", "TINY", "--data", "TEXTS", "--out", "TEXTS"), "is among the prompts"),
        (("check",), "needs what was trained"),
        (("check", "HERE", "--target", "TINY"), "holds no training.json"),
        (("answers", "--target", "TINY"), "needs who writes"),
    ],
)
def test_what_cannot_be_is_one_line(outdraft, tiny, texts, tmp_path, words, says):
    places = {"HERE": str(tmp_path), "TINY": str(tiny), "TEXTS": str(texts)}
    given = [places.get(word, word.replace("HERE", str(tmp_path))) for word in words]
    ran = outdraft("train", *given)
    assert ran.code == 2 and says in ran.err, ran.err
    assert not (tmp_path / "config.json").exists()
