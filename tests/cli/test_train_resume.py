"""A real Ctrl-C in the middle of `outdraft train`, and `--resume`: the draft that is saved has the same bits."""

import json
import os
import signal

import pytest

from outdraft.training.loop import Loop

LOOP = ("seq_len=48", "batch_tokens=96", "micro_tokens=48", "eval_every=3", "save_every=1000", "steps=9")


@pytest.mark.parametrize("kind", ["ctc", "hass"])  # hass reads states with noise
def test_a_run_that_was_interrupted_twice_saves_the_same_bits(outdraft, tiny, tmp_path, monkeypatch, kind):
    texts = [[(i * 7 + j * j) % 257 for j in range(40)] for i in range(30)]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"token_ids": ids}) + "\n" for ids in texts))
    loop = [word for one in LOOP for word in ("--loop", one)]

    def train(out, *more):
        return outdraft(
            "train", kind, "--target", tiny, "--data", tmp_path / "texts.jsonl", "--out", tmp_path / out, *loop, *more
        )

    assert (ran := train("whole")).code == 0, ran.err
    step = Loop._one_step

    def interrupted(self):
        found = step(self)
        if self.step in (2, 5):  # the third and the sixth step are done, and no checkpoint has been written
            os.kill(os.getpid(), signal.SIGINT)
        return found

    monkeypatch.setattr(Loop, "_one_step", interrupted)
    for more, done in ((), 3), (("--resume",), 6):
        stopped = train("parts", *more)
        assert f"stopped at step {done}; --resume goes on" in stopped.err, stopped.err
        assert not (tmp_path / "parts/training.json").exists() and not (tmp_path / "parts/config.json").exists()
    assert (ran := train("parts", "--resume")).code == 0, ran.err
    weights = [(tmp_path / out / "model.safetensors").read_bytes() for out in ("whole", "parts")]
    assert weights[0] == weights[1]
    scores = [json.loads((tmp_path / out / "training.json").read_text())["best"] for out in ("whole", "parts")]
    assert scores[0] == scores[1]
