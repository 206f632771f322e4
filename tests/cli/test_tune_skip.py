"""`outdraft tune-skip`: it writes a file that the drafter takes, goes on where it was, and says what is wrong."""

import json

import pytest

from outdraft.cli.commands.tune_skip import read_prompts

pytest.importorskip("optuna", reason="the extra outdraft[tune] is not installed")
pytest.importorskip("scipy")


def test_the_command(outdraft, tiny, tmp_path):
    out, prompts = tmp_path / "skip.json", tmp_path / "prompts.txt"
    prompts.write_text("abcabc\n\nthe fox\n")
    words = ("tune-skip", tiny, "--out", out, "--prompts", prompts, "--max-tokens", 8, "--objective", "modelled")
    ran = outdraft(*words, "--trials", 4, "--json")
    assert ran.code == 0, ran.err
    said, held = json.loads(ran.out), json.loads(out.read_text())
    assert said["num_trials"] == held["num_trials"] == 4 and held["num_layers"] == 2
    assert held["score"] > 0.3 and held["objective"] == "modelled"
    again = outdraft(*words, "--trials", 4)
    assert again.code == 0 and "left out, modelled" in again.out
    assert json.loads(out.read_text())["score"] == held["score"]
    used = outdraft(
        "generate",
        "abc",
        "--model",
        tiny,
        "--drafter",
        "draft_verify",
        "--drafter-options",
        f"skip={out}",
        "--max-tokens",
        8,
        "--json",
    )
    assert used.code == 0, used.err
    assert json.loads(used.out)["config"]["drafter"]["skip_mlp"] == held["mlp"]


def test_a_prompt_ends_with_its_line_alone(tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one\u2028and\x0cmore\n \ntwo\r\n", encoding="utf-8")
    assert read_prompts(prompts) == ["one\u2028and\x0cmore", "two"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "needs a model and a file to write"),
        (("--out", "nowhere/skip.json"), "is no directory"),
        (("--out", "skip.json", "--trials", 0), "--trials 0"),
        (("--out", "skip.json", "--prompts", "none.txt"), "none.txt is not a readable"),
    ],
)
def test_what_it_refuses(outdraft, tiny, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    ran = outdraft("tune-skip", tiny, *words)
    assert ran.code == 2 and says in ran.err
