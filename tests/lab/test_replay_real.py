"""The command that compares recordings of real traffic with their replays."""

import re

import pytest

from lab import replay_real
from outdraft.bench.replay.trace import read_trace


@pytest.mark.parametrize(("traffic", "count"), [("burst", 5), ("stream", 6), ("turns", 4)])
def test_each_traffic_is_recorded_and_replayed(tmp_path, capsys, traffic, count):
    assert replay_real.main(["--traffic", traffic, "--size", "0.1", "--rate", "50", "--keep", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    shown = re.findall(r"(tokens a second|first token, ms) +real +([\d.]+) +replayed +([\d.]+) +([\d.]+)x", out)
    assert [words for words, *_ in shown] == ["tokens a second", "first token, ms"]
    for _, recorded, replayed, ratio in shown:
        assert float(recorded) > 0 and float(ratio) == pytest.approx(
            float(replayed) / float(recorded), abs=0.06
        )  # of figures that were rounded
    requests = read_trace(tmp_path / f"{traffic}.jsonl").requests
    assert len(requests) == count
    assert [one.cached >= 256 for one in requests[1:]] == [traffic == "turns"] * (count - 1)


def test_a_number_that_is_far_off_ends_it_with_1(tmp_path, capsys):
    assert replay_real.main(["--traffic", "burst", "--size", "0.1", "--within", "0"]) == 1
    assert replay_real.main(["no/such/model"]) == 2
    assert "error: " in capsys.readouterr().err
