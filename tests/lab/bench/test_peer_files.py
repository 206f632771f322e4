"""llama.cpp's figures are read from its own programs, and a line of the table says which engine each is of."""

import json
import re

import pytest

from lab.bench.peer_files import measure_ours, measure_theirs, show
from outdraft import zoo
from outdraft.models.remake.gguf_round import write_rounded_gguf


def program(path, text, code=0):
    path.write_text(f"#!/bin/sh\necho '{text}'\nexit {code}\n")
    path.chmod(0o755)


def test_what_the_peers_programs_print_is_read(tmp_path):
    rows = [{"n_prompt": 661, "n_gen": 0, "avg_ns": 2e9}, {"n_prompt": 0, "n_gen": 48, "avg_ts": 20.5}]
    program(tmp_path / "llama-bench", json.dumps(rows))
    steps = [{"pl": 5, "tg": 16, "t_tg": 1.6}, {"pl": 9, "tg": 16, "t_tg": 3.2}]
    program(tmp_path / "llama-batched-bench", "\n".join(["", *map(json.dumps, steps)]))
    found = measure_theirs(tmp_path, "model.gguf", 2, 48)
    assert found.pop("memory") > 0
    assert found == pytest.approx({"661": 2, "tokens": 20.5, "5": 0.1, "9": 0.2})
    program(tmp_path / "llama-bench", "", code=3)
    with pytest.raises(SystemExit, match="llama-bench ended with 3 on model"):
        measure_theirs(tmp_path, "model.gguf", 2, 48)


def test_a_file_is_measured_and_shown(tmp_path):
    write_rounded_gguf(zoo.path("target"), path := tmp_path / "small.gguf", "q8_0")
    ours = measure_ours(str(path), 1, 2)
    assert ours["tokens"] > 0 and ours["1"] > 0 and ours["661"] > 0 and ours["load"] > 0
    peer = {name: value / 2 if name == "tokens" else value * 4 for name, value in ours.items()}
    line = show({"file": str(path), "bytes": 10**7, "shares": "Q8_0 100 %", "ours": [ours] * 3, "theirs": [peer] * 3})
    assert re.findall(r"\((\d.\d\d)x\)", line) == ["2.00", "4.00", "4.00", "4.00"]
    assert line.startswith("| small (Q8_0 100 %) | 10 | ")
