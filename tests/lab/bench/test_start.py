"""How soon a process writes, and what it holds: the table, and one real process of each kind."""

import pytest

from lab.bench import start


def test_the_median_of_each_kind_is_shown(monkeypatch, capsys):
    rows = iter(range(100))

    def fresh(model, *, kept):
        n = next(rows)
        weights = 64 << 20
        return {
            "imported": 0.5,
            "loaded": float(n),
            "first": n + 0.25,
            "tenth": n + 0.5,
            "processor": n / 100,
            "private": weights / (8 if kept else 1),
            "weights": weights,
        }

    monkeypatch.setattr(start, "run_fresh", fresh)
    assert start.main(["zoo:target", "--rounds", "3"]) == 0
    _, packed, anew = capsys.readouterr().out.splitlines()
    assert "packed" in packed and "3.00s   3.25s   3.50s      0.03s" in packed and "8 MiB = 0.12 x 64 MiB" in packed
    assert "anew" in anew and "4.00s   4.25s   4.50s      0.04s" in anew and "1.00 x" in anew


def test_what_cannot_be_loaded_is_said(tmp_path, capsys):
    assert start.main([str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_each_process_keeps_bytecode_and_packs_anew_if_asked(monkeypatch):
    seen = []

    def run(words, *, env, **how):
        seen.append(env)
        return type("Done", (), {"stdout": 'a line of the model\n{"first": 1.0}\n'})

    monkeypatch.setattr(start.subprocess, "run", run)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("OUTDRAFT_CACHE", "here")
    assert start.run_fresh("model", kept=True) == start.run_fresh("model", kept=False) == {"first": 1.0}
    assert [env["OUTDRAFT_CACHE"] for env in seen] == ["here", "off"]
    assert not any("PYTHONDONTWRITEBYTECODE" in env for env in seen)


@pytest.mark.slow
def test_a_process_is_measured():
    found = start.run_fresh(str(start.make_model("zoo:target", start.Shelf()).path), kept=False)
    assert 0 < found["imported"] < found["loaded"] < found["first"] < found["tenth"]
    assert found["processor"] > 0 and found["private"] > 0 and found["weights"] > 10 << 20
