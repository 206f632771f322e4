"""The command that measures a model larger than its memory."""

import pytest
import torch

from lab.bench import streaming
from outdraft import LLM, SamplingParams
from outdraft.bench.lineup import parse_rival
from outdraft.bench.suites import load_suites
from outdraft.kernels.library import library
from outdraft.models.files.load import save_model
from outdraft.testing.tiny import random_decoder, tiny_config
from outdraft.zoo import path as zoo_path

pytestmark = pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)")


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = tiny_config(layers=8, hidden=64, inner=96, heads=2, kv_heads=1, vocab=4096)
    save_model(random_decoder(config, dtype=torch.bfloat16, exact=False), tmp_path / "model")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "model" / name).write_bytes((zoo_path("draft") / name).read_bytes())
    return tmp_path / "model"


def ask(directory, *more: str, memory: str = "700KiB") -> list[str]:
    few = ["--prompts", "1", "--rounds", "2", "--max-tokens", "12"]
    return ["--model", str(directory), "--weights-memory", memory, *few, *more]


def test_every_line_is_checked_against_the_whole_model(directory, capsys):
    method = f'pearl:drafter={{"method":"draft_model","model":"{directory}"}},k=4'
    assert streaming.main(ask(directory, "--method", f"draft_model:model={directory},k=6", "--method", method)) == 0
    shown = capsys.readouterr().out
    assert shown.count("the same") == 5 and "ANOTHER" not in shown  # plain, draft model, pearl twice, whole
    assert "not overlapped" in shown
    lines = {line.split()[0]: line.split() for line in shown.splitlines()[2:]}
    assert float(lines["plain"][1]) == 1.0


def test_another_text_is_a_failure(directory, capsys, monkeypatch):
    measure = streaming.measure

    def lying(llm, label, *more):
        found = measure(llm, label, *more)
        if label.startswith("ngram"):
            found.texts = [()]
        return found

    monkeypatch.setattr(streaming, "measure", lying)
    assert streaming.main(ask(directory, "--method", "ngram:k=4")) == 1
    assert "ANOTHER" in capsys.readouterr().out


def test_a_method_is_run_as_it_was_spelled(directory):
    """Recipe, policy with its options, and threads, too."""
    words = ("recipe:ngram,k=3", "ngram:policy=bandit,policy.seed=7,threads=1")
    made = streaming.engines(directory, 700 << 10, [(word, parse_rival(word)) for word in words], None)
    recipe, paced = (llm.config for _, llm, _ in made[1:])
    assert recipe["recipe"] is not None and paced["policy"]["seed"] == 7
    assert [threads for *_, threads in made] == [None, None, 1]


def test_no_round_profits_from_an_earlier_one():
    llm = LLM("zoo:target", drafter="suffix", num_speculative_tokens=4)
    asked = load_suites(["prose"], count=1), SamplingParams(max_tokens=24, ignore_eos=True)
    found = [streaming.measure(llm, "suffix", *asked) for _ in range(2)]
    assert found[0].texts == found[1].texts and found[0].num_passes == found[1].num_passes


def test_rounds_change_their_order_and_begin_warm(directory, capsys, monkeypatch):
    asked, measure, generate = [], streaming.measure, LLM.generate
    monkeypatch.setattr(streaming, "measure", lambda *given: (asked.append(given[1]), measure(*given))[1])
    monkeypatch.setattr(
        LLM,
        "generate",
        lambda self, prompt, params: (asked.append(params.max_tokens), generate(self, prompt, params))[1],
    )
    assert streaming.main(ask(directory, "--method", "ngram:k=4")) == 0
    assert asked[:2] == [4, 4] and asked[-3:] == [4, "whole model in memory", 12]
    first, second = asked[2:6:2], asked[6:10:2]
    assert first == ["plain", "ngram k=4"] and second == first[::-1]


def test_a_bad_request_is_one_line(directory, capsys):
    assert streaming.main(ask(directory, memory="1KiB")) == 2
    assert "too little" in capsys.readouterr().err
