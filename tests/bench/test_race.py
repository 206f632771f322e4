"""The race reports every drafter with a figure by kind of prompt, and says whether its text is the plain one."""

import json

from outdraft.bench.__main__ import INSIDERS, RIVALS, main


def test_every_rival_is_reported_once_and_identical(capsys):
    assert main(["--seconds", "0", "--max-tokens", "8", "--per-kind", "1"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["name"] for line in lines] == [rival.name for rival in RIVALS + INSIDERS]
    for line in lines:
        assert line["identical"] and line["speedup"] > 0 and set(line["by_kind"]) == {"prose", "python", "docs", "copy"}
        assert line["num_rounds"] >= 3 and 1 <= line["tau"] <= line["num_speculative_tokens"] + 1
        assert sum(of["tau"] for of in line["by_kind"].values()) > 3.9
