"""Every example runs to its end, and none is longer than a screen; so do the programs of three pages.

Examples run in this process, with texts of `MOST` tokens at most; the program of the README is a process of its own.
"""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import outdraft

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
ON_RAY = [path for path in EXAMPLES if path.stem.startswith("ray_")]
MOST = 10  # tokens of a text
FEWER = {"affinity": ["12"]}  # arguments of an example


@pytest.mark.slow
@pytest.mark.parametrize("path", ON_RAY, ids=lambda path: path.stem)
def test_example_on_ray(path):
    pytest.importorskip("ray")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    is_an_example(path, done.stdout)


@pytest.mark.parametrize("path", [path for path in EXAMPLES if path not in ON_RAY], ids=lambda path: path.stem)
def test_example(path, monkeypatch, capsys):
    params = outdraft.SamplingParams
    monkeypatch.setattr(
        outdraft,
        "SamplingParams",
        lambda max_tokens, **more: params(max_tokens=min(max_tokens, MOST), **more),
        raising=False,
    )
    monkeypatch.setattr(sys, "argv", [str(path), *FEWER.get(path.stem, [])])
    runpy.run_path(str(path), run_name="__main__")
    is_an_example(path, capsys.readouterr().out)


def is_an_example(path, shown):
    assert len(path.read_text().splitlines()) <= 60
    assert shown.strip() and "DIFFERENT" not in shown


def first_program(page, language):
    """The first block of this language on a page."""
    return re.search(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL).group(1)


def output_of(program, tmp_path):
    (tmp_path / "program.py").write_text(program)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "examples"), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_readme_program(tmp_path):
    assert "tokens per pass of the target" in output_of(first_program("README.md", "python"), tmp_path)


@pytest.mark.slow
def test_the_tutorials_program(tmp_path):
    text, rate = output_of(first_program("docs/tutorial.md", "python"), tmp_path).strip().rsplit("\n", 1)
    assert len(text) > 100 and 0 <= float(rate.split()[0]) <= 1 and int(rate.split()[1]) >= 0


SHORTER = {  # what is added to a command of docs/training.md, so that it takes seconds
    "train answers": "--max-tokens 48",
    "train eagle": "--tokens 2000 --loop seq_len=64 --loop batch_tokens=256",
}


@pytest.mark.slow
def test_the_first_commands_of_the_page_on_training(tmp_path):
    """From prompts to a draft that is used; the check cannot say much of so short a training, and says that."""
    prompts = [{"prompt": f"It was late when the {who} came home, and"} for who in ("cat", "king", "boy", "ship") * 8]
    (tmp_path / "prompts.jsonl").write_text(
        "".join(json.dumps(one | {"id": i}) + "\n" for i, one in enumerate(prompts))
    )
    made = []
    for line in first_program("docs/training.md", "bash").splitlines():
        command = line.partition("#")[0].strip().replace("MODEL", "zoo:target")
        kind = " ".join(shlex.split(command)[1:3])
        words = shlex.split(f"{command} {SHORTER.get(kind, '')}")[1:]
        done = subprocess.run(
            [sys.executable, "-m", "outdraft", *words], cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert done.returncode in ((0, 3) if kind == "train check" else (0,)), f"{command}\n{done.stdout}{done.stderr}"
        made.append(kind)
    assert made == ["train answers", "train eagle", "train eagle", "train check", "generate It was late when"]
    assert len(done.stdout.strip()) > 20
