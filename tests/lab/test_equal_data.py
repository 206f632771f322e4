"""A second process keeps the target's states from the last step on, and a training that meets them learns the same."""

import json
from pathlib import Path

import numpy as np
import pytest

from lab.smollm2 import equal_data
from outdraft.training.course import prepare

STEPS = 6


@pytest.fixture
def words(tmp_path: Path, monkeypatch) -> list[str]:
    """Texts for the zoo's target, rows of 32 tokens, and a kind that has taps."""
    monkeypatch.setitem(equal_data.OPTIONS, "eagle", {"num_steps": 2})
    monkeypatch.setitem(equal_data.LOOP, "seq_len", 32)
    monkeypatch.setattr(equal_data, "exams", lambda course, out: {})
    for seed, name in enumerate(("train", "valid")):
        ids = np.random.default_rng(seed).integers(4096, size=(20, 30)).tolist()
        lines = [json.dumps({"prompt_token_ids": row[:2], "token_ids": row[2:]}) for row in ids]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    sizes = ["--tokens", str(64 * STEPS), "--batch", "64", "--cache-bytes", "100000000"]
    return ["zoo:target", str(tmp_path), str(tmp_path / "out"), *sizes, "--kinds", "eagle", "--dtype", "float32"]


def states(tmp_path: Path) -> dict[str, int]:
    """The files that are kept, and when each was written."""
    return {one.name: one.stat().st_mtime_ns for one in (tmp_path / "out/states").glob("*.safetensors")}


def trained(words: list[str], monkeypatch) -> tuple[int, bytes]:
    """How many passes the target makes, and what is learned."""
    asked: list[int] = []

    def watched(plan, say):
        course = prepare(plan, say)
        run = course.teacher.target.run
        course.teacher.target.run = lambda *a, **k: asked.append(1) or run(*a, **k)
        return course

    with monkeypatch.context() as patch:
        patch.setattr(equal_data, "prepare", watched)
        assert equal_data.main(words) == 0
    return len(asked), (Path(words[2]) / "eagle/model.safetensors").read_bytes()


def test_a_training_makes_no_states_that_were_filled_and_learns_the_same(words, tmp_path, monkeypatch):
    assert equal_data.main([*words, "--fill"]) == 0
    kept = states(tmp_path)
    assert len(kept) == STEPS
    lost = min(kept)
    (tmp_path / "out/states" / lost).unlink()
    assert equal_data.main([*words, "--fill"]) == 0  # one that was stopped is begun again
    again = states(tmp_path)
    assert again.keys() == kept.keys() and [name for name in kept if again[name] != kept[name]] == [lost]
    passes, learned = trained(words, monkeypatch)
    words[2] = str(tmp_path / "plain")
    assert trained(words, monkeypatch) == (passes + STEPS, learned)
    assert json.loads((tmp_path / "out/eagle.json").read_text())["tokens"] == 64 * STEPS


def test_where_there_is_no_room_it_ends(words, tmp_path, capsys):
    words[words.index("--cache-bytes") + 1] = "100000"
    assert equal_data.main([*words, "--fill"]) == 1
    assert 0 < len(states(tmp_path)) < STEPS
    assert "no room for the states of step" in capsys.readouterr().out
    words[words.index("--cache-bytes") + 1] = "0"
    with pytest.raises(SystemExit, match="--cache-bytes"):
        equal_data.main([*words, "--fill"])
