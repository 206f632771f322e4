"""What drafters gain, measured: on the zoo's target, with sets of a few lines."""

import gzip
import json
from pathlib import Path

import pytest

from lab.smollm2 import measure_methods
from outdraft.bench import measured
from outdraft.bench.entrant import Ours


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = {
        "mt-bench/question.jsonl": [{"question_id": n, "turns": [f"It was late {n}", "and then"]} for n in range(3)],
        "gsm8k/train.jsonl": [{"question": f"How many are {n} apples?"} for n in range(500)],
        "humaneval/HumanEval.jsonl.gz": [{"task_id": "a", "prompt": "def main(a):\n"}],
    }
    for name, lines in rows.items():
        path = tmp_path / name
        path.parent.mkdir()
        text = "".join(json.dumps(line) + "\n" for line in lines).encode()
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return tmp_path


def run(data: Path, *more: str) -> int:
    words = ["--model", "zoo:target", "--chats", "2", "--tokens", "6", "--rounds", "1", "--draft", "zoo:draft"]
    return measure_methods.main([str(data), *words, "--out", str(data / "made.json"), *more])


def only(*drafters: str) -> list[str]:
    return [word for drafter in drafters for word in ("--only", drafter)]


def test_rows_are_made_and_a_second_run_goes_on(data: Path, capsys, monkeypatch):
    assert run(data, *only("auto", "draft_model", "merge", "eagle", "llma")) == 0
    made = json.loads((data / "made.json").read_text())
    assert list(made["rows"]) == ["auto", "draft_model", "merge"]
    assert made["target"] == "zoo:target" and made["sets"] == ["MT-Bench", "GSM8K", "HumanEval"] and made["machine"]
    assert "--chats 2 --tokens 6 --rounds 1 --draft zoo:draft" in made["command"]
    for row in made["rows"].values():
        assert list(row) == made["sets"] and all(one["tau"] >= 1 and one["speedup"] > 0 for one in row.values())
    shown = capsys.readouterr().err
    assert "eagle: left out: needs head" in shown and "llma: left out: needs references" in shown
    assert "5 drafters of " in shown and ", 5 prompts." in shown  # two of each set, and the only one of the last
    asked: list[str] = []
    monkeypatch.setattr(measure_methods, "measure", lambda *words: asked.append("") or made["rows"]["auto"])
    assert run(data, *only("auto", "merge", "ngram")) == 0
    assert len(asked) == 1 and set(json.loads((data / "made.json").read_text())["rows"]) >= {"auto", "merge", "ngram"}
    assert run(data, "--head", "eagle=zoo:eagle", *only("ngram")) == 0  # of another command nothing is kept
    assert set(json.loads((data / "made.json").read_text())["rows"]) == {"ngram"}


def test_another_text_is_reported_and_has_no_row(data: Path, capsys, monkeypatch):
    wrong = Ours.time_text

    def spoiled(self, ids, params, **more):
        timed = wrong(self, ids, params, **more)
        if self.llm.config["drafter"]["name"] == "ngram":
            object.__setattr__(timed, "token_ids", (*timed.token_ids[:-1], 0))
        return timed

    monkeypatch.setattr(Ours, "time_text", spoiled)
    assert run(data, *only("ngram", "suffix")) == 1
    assert "ngram: another text on MT-Bench" in capsys.readouterr().err
    assert list(json.loads((data / "made.json").read_text())["rows"]) == ["suffix"]


def test_questions_of_gsm8k_are_the_held_out_ones(data: Path):
    from outdraft import LLM

    llm = LLM("zoo:target", drafter="none")
    first = next(prompt for name, prompt in measure_methods.prompts_of(data, 1, llm) if name == "GSM8K")
    assert f"How many are {500 - measure_methods.HELD_OUT} apples?" in llm.tokenizer.decode(list(first.ids))


def test_the_file_that_ships_names_drafters_that_are_there():
    from outdraft.core.registry import names

    made = measured.read_measured()
    assert made["target"] == "smollm2" and set(made["rows"]) <= {"auto", *names("drafter")}
    assert all(set(row) == set(made["sets"]) for row in made["rows"].values())
