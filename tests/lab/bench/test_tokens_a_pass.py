"""Tokens a pass by method: what is counted, its interval, the table, and what cannot be asked."""

import numpy as np
import pytest

from lab.bench.tokens_a_pass import Counts, main, row, variants
from outdraft.bench.lineup import parse_rival
from outdraft.options.errors import ConfigError


def counts(tokens, passes):
    return Counts(tokens=np.array(tokens, float), passes=np.array(passes, float))


def test_texts_are_drawn_anew_and_in_pairs():
    """All texts together, not the mean of their rates; of two methods the same texts are drawn."""
    plain, twice = counts([10, 30, 20], [10, 30, 20]), counts([20, 60, 40], [10, 30, 20])
    assert row([plain, twice]) == ["1.00 [1.00, 1.00]", "2.00 [2.00, 2.00]", "2.00 [2.00, 2.00]"]
    uneven = counts([10, 90], [10, 30])
    assert uneven.tau == 2.5
    assert {round(one, 2) for one in uneven.drawn()} == {1.0, 2.5, 3.0}
    (told,) = row([counts([10, 90] * 8, [10, 30] * 8)])
    assert told.startswith("2.50 [") and 1.5 < float(told[6:10]) < 2.5 < float(told[12:16]) < 3.0


def test_the_table(capsys):
    words = ["--method", "none", "--method", "eagle:k=3", "--prompts", "2", "--max-tokens", "10", "--temperature", "1"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| method | T | seed | tokens a pass |" and len(lines) == 6
    assert lines[2] == "| none | 1 | no | 1.00 [1.00, 1.00] |" and lines[5].startswith("| eagle:k=3 | 1 | yes | ")
    assert float(lines[5].split(" | ")[3].split()[0]) > 1


def test_an_option_that_varies_is_read_as_it_is_elsewhere():
    named = variants(parse_rival("recipe:eagle"), "width=4,2")
    assert {value: dict(one.options) for value, one in named.items()} == {"4": {"width": 4}, "2": {"width": 2}}
    assert all(one.is_recipe for one in named.values())
    for vary in ("sample", "sample=", "=greedy", "sample=greedy,"):
        with pytest.raises(ConfigError, match="write KEY=VALUE,VALUE"):
            variants(parse_rival("eagle"), vary)


def test_what_cannot_be_had_is_one_line(capsys):
    assert main(["--method", "eagel", "--prompts", "1"]) == 2
    assert "did you mean 'eagle'" in capsys.readouterr().err
