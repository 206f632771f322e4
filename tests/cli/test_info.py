"""`outdraft info`, `outdraft completion` and the notes before a measurement: what is said is what is there."""

import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import torch
from gguf import GGUFReader
from weights.test_gguf_blocks import write_blocks

from outdraft import zoo
from outdraft.analysis import tables
from outdraft.bench import forecast, machine
from outdraft.bench.clock import Timed
from outdraft.cli.commands import bench
from outdraft.engine.llm import LLM
from outdraft.engine.stats import RequestStats
from outdraft.kernels.library import library, wanted_kind
from outdraft.testing.losslessness import Check


def test_info_tells_what_runs(outdraft, tiny: Path):
    told = json.loads(outdraft("info", "--json", "--model", tiny).out)
    assert told["machine"]["cores"] == len(os.sched_getaffinity(0)) and told["packages"]["torch"] == torch.__version__
    assert told["kernels"]["native"] == (wanted_kind() if library() else "none: PyTorch computes")
    assert told["model"]["vocabulary"] == 257 and told["model"]["chat template"] == "no"
    assert "zoo:target" in told["models"]["ship with it"]
    shown = outdraft("info").out
    assert "kernels" in shown and "GiB" in shown and "\x1b" not in shown and "companions" not in shown


def test_info_tells_what_would_draft(outdraft, tiny: Path):
    """As `LLM(model)` then does it."""
    told = json.loads(outdraft("info", "--json", "--model", "zoo:target").out)["model"]["drafts by default"]
    if library() is None:
        assert told.startswith("nothing")
    else:
        assert told.startswith("ngram, suffix, eagle (") and "--drafter none" in told
    alone = json.loads(outdraft("info", "--json", "--model", tiny).out)["model"]["drafts by default"]
    assert alone.startswith("nothing: the native kernels do not compute")  # its width is no multiple of theirs


def test_info_tells_how_large_the_weights_are(outdraft):
    size = json.loads(outdraft("info", "--json", "--model", "zoo:target").out)["model"]["weights"]
    assert (
        size
        == f"{(zoo.path('target') / 'model.safetensors').stat().st_size / 2**20:.0f} MiB of files"
        != "0 MiB of files"
    )


def test_info_names_the_types_of_a_gguf_file(outdraft, tmp_path: Path):
    path = write_blocks(tmp_path / "m.gguf", lambda part: "Q4_K" if part.startswith("ffn") else "Q8_0")
    shares = json.loads(outdraft("info", "--json", "--model", path).out)["model"]["types by bytes"].split(", ")
    sizes = Counter()
    for tensor in GGUFReader(path).tensors:
        sizes[tensor.tensor_type.name] += int(tensor.n_bytes)
    assert shares == [f"{100 * size / sizes.total():.1f} % {kind}" for kind, size in sizes.most_common()]
    assert [one.split(" ")[2] for one in shares] == ["Q8_0", "Q4_K", "F32"]


def test_info_names_the_reason_without_kernels(outdraft, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("outdraft.kernels.library._load", lambda: (None, "no compiler was there"))
    told = json.loads(outdraft("info", "--json").out)
    assert told["kernels"] == {"native": "none: PyTorch computes", "reason": "no compiler was there"}


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["dem"], {"demo"}),
        (["generate", "--dra"], {"--draft-model", "--drafter", "--drafter-options"}),
        (["generate", "--drafter", "ngr"], {"ngram", "ngrammys"}),
        (["datastore", "b"], {"build"}),
        (["bench", "--by", ""], {"suite", "category"}),
        (["completion", "f"], {"fish"}),
        (["methods", "ngr"], {"ngram", "ngrammys"}),
        (["methods", "layers"], {"layerskip"}),
        (["methods", "ngram", "--op"], {"--options"}),
    ],
)
def test_bash_completes(outdraft, tmp_path: Path, typed: list[str], offered: set[str]):
    script = outdraft("completion", "bash").out
    words = " ".join(f"'{word}'" for word in ["outdraft", *typed])
    ask = f'{script}\nCOMP_WORDS=({words}); COMP_CWORD={len(typed)}; _outdraft; echo "${{COMPREPLY[@]}}"'
    ran = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert set(ran.stdout.split()) == offered and ran.stderr == ""


def test_the_other_shells_have_a_script(outdraft):
    assert "bashcompinit" in outdraft("completion", "zsh").out
    fish = outdraft("completion", "fish").out
    assert (
        "-l drafter" in fish and "__fish_seen_subcommand_from datastore; and __fish_seen_subcommand_from build" in fish
    )


def test_busy_ticks_are_all_but_idle_and_waiting(tmp_path: Path):
    ours = min(os.sched_getaffinity(0))
    (tmp_path / "stat").write_text(
        f"cpu  9 9 9 9 9 9 9 9 0 0\ncpu{ours} 1 2 4 100 50 8 16 32 7 7\ncpu9999 5 5 5 5 5 5 5 5\n"
    )
    assert machine._ticks(tmp_path / "stat") == {ours: (63, 213)}
    assert machine._ticks(tmp_path / "none") is None


def test_a_busy_machine_is_named(monkeypatch: pytest.MonkeyPatch):
    cores = len(os.sched_getaffinity(0))
    assert machine.busy_note(0.0) == "" and f"1.0 of {cores} cores" in machine.busy_note(1.0)
    monkeypatch.setattr(machine, "_ticks", iter([{0: (10, 100), 1: (0, 100)}, {0: (30, 120), 1: (5, 120)}]).__next__)
    assert machine.busy_cores(0.0) == 1.2  # all of one core and a quarter of another
    monkeypatch.setattr(machine, "_ticks", lambda: None)
    assert machine.busy_cores(0.0) is None and machine.busy_note() == ""


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "1 s"), (7, "7 s"), (38, "40 s"), (100, "2 min"), (3000, "50 min"), (7300, "2 h")]
)
def test_a_forecast_in_words(seconds: float, words: str):
    assert forecast.in_words(seconds) == words


def test_a_forecast_tells_a_busy_machine_from_a_quiet_one():
    assert forecast.how_long(38, 36) == "about 40 s"
    assert forecast.how_long(400, 38) == "about 7 min now, about 40 s on a quiet machine"


def test_the_pace_of_a_text(tiny: Path, monkeypatch: pytest.MonkeyPatch):
    """A prompt of 10 tokens is read in 1 s, a token then takes 0.1 s; a third of that was work, the rest waiting."""
    texts = []

    def time_text(llm, ids, params):
        texts.append(len(ids))
        clock[0] += 0.1 * len(ids) + 0.1 * (params.max_tokens - 1)
        worked[0] += (0.1 * len(ids) + 0.1 * (params.max_tokens - 1)) / 3
        took, first = 0.1 * len(ids) + 0.1 * (params.max_tokens - 1), 0.1 * len(ids)
        return Timed(token_ids=(), text="", stats=RequestStats(), seconds=took, first_token_seconds=first)

    clock, worked = [0.0], [0.0]
    monkeypatch.setattr(forecast, "time_text", time_text)
    monkeypatch.setattr(forecast, "process_time", lambda: worked[0])
    pace = forecast.text_pace(LLM(str(tiny), drafter="none"), 101, 10)
    assert pace.seconds == pytest.approx(1.0 + 10.0) and pace.quiet == pytest.approx(11.0 / 3)
    assert set(texts) == {10}


def test_quick_is_small():
    """Fewer texts than this takes under a minute on two quiet cores: 6 methods, 4 suites, a first text and 3 rounds."""
    assert 6 * 4 * bench.QUICK_PROMPTS * (1 + bench.QUICK_ROUNDS) * bench.QUICK_TOKENS <= 10_000
    assert bench.QUICK_ROUNDS >= tables.FEWEST and 4 * bench.QUICK_PROMPTS >= tables.FEWEST


def test_demo_and_bench_say_how_long(outdraft, tiny: Path, tmp_path: Path):
    ran = outdraft("demo", "--model", tiny, "--max-tokens", 8, "--seconds", 0, "--no-live")
    assert "this takes about " in ran.out
    (tmp_path / "text.txt").write_text("abc abc abc\n")
    words = ("--method", "ngram", "--suite", f"mine={tmp_path / 'text.txt'}", "--rounds", 1, "--max-tokens", 8)
    ran = outdraft("bench", "--model", tiny, *words, "--no-curve", "--no-plots", "--out", tmp_path / "out.jsonl")
    assert ran.code == 0 and "at most 4 texts of 8 tokens: about " in ran.out


@pytest.mark.parametrize(
    ("checks", "verdict"),
    [
        ([(True, True)], "LOSSLESS"),
        ([(True, True), (False, False)], "INCONCLUSIVE"),
        ([(False, False), (False, True)], "NOT PROVEN"),
    ],
)
def test_too_little_to_tell_is_no_failure(outdraft, monkeypatch: pytest.MonkeyPatch, checks, verdict: str):
    made = [Check(name=f"check {i}", passed=p, conclusive=c, detail="") for i, (p, c) in enumerate(checks)]
    monkeypatch.setattr("outdraft.cli.commands.audit.run_checks", lambda *_: iter(made))
    ran = outdraft("audit", "--drafter", "ngram")
    assert ran.out.rpartition("\n\n")[2].startswith(f"{verdict}: ") and ran.code == (verdict != "LOSSLESS")
    assert ran.out.count("FAIL") == sum(not p and c for p, c in checks)
