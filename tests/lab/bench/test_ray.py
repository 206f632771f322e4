"""Engines on Ray against engines by hand: the measuring itself, on a load too small to say anything."""

import re

import pytest

from lab.bench.ray import main


@pytest.mark.slow
def test_it_asks_both_and_tells_their_ratio(capsys):
    pytest.importorskip("ray")
    assert main(["zoo:target", "--rounds", "2", "--requests", "1", "--max-tokens", "8"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"on Ray / by hand: \d\.\d\d \(\d", told), told


def test_a_model_that_is_not_there_is_said_before_anything_begins(capsys):
    assert main(["no/such/model"]) == 2
    assert "no/such/model" in capsys.readouterr().err
