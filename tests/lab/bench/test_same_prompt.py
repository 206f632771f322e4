"""The same prompt twice: what is printed of it, on a prompt too short to say anything."""

import re

from lab.bench.same_prompt import main
from outdraft.kernels.library import library


def test_it_tells_both_times_and_what_was_taken_over(capsys):
    assert main(["zoo:target", "--prompt", "100", "--rounds", "2"]) == 0
    told = capsys.readouterr().out
    rows = re.findall(r"(none|eagle) +first token after \d+ ms, .*x sooner; tokens taken over: (\d+)\n", told)
    assert [name for name, _ in rows] == ["none", "eagle"], told
    if library() is not None:
        assert all(80 <= int(taken) <= 96 for _, taken in rows), told


def test_a_drafter_that_is_not_there_is_one_line(capsys):
    assert main(["zoo:target", "--prompt", "20", "--rounds", "1", "--drafter", "eagel"]) == 2
    assert "eagle" in capsys.readouterr().err
