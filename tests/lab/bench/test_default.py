"""The default against plain decoding: what is asked, and the table with the median and the worst round."""

from contextlib import contextmanager

import pytest

from lab.bench import default
from lab.bench.default import Cell, Outcome, requests


def test_what_is_asked():
    prompts, params = requests(Cell(batch=40, temperature=0.8, text="random"), 50, 7)
    assert len(prompts) == 40 and all(0 <= i < 50 for one in prompts for i in one["prompt_token_ids"])
    assert len({tuple(one["prompt_token_ids"]) for one in prompts}) == 40
    assert [one.seed for one in params] == list(range(40)) and {one.max_tokens for one in params} == {7}
    again = requests(Cell(batch=40, temperature=0.8, text="random"), 50, 7)
    assert again == (prompts, params)
    prompts, params = requests(Cell(batch=32, temperature=0.0, text="prose"), 50, 7)
    assert len(prompts) == 32 and 1 < len(set(prompts)) <= 32 and {one.seed for one in params} == {None}


def test_a_small_model_is_measured(capsys):
    words = [
        "zoo:target",
        "--batch",
        "2",
        "--temperature",
        "0",
        "1.2",
        "--text",
        "code",
        "--max-tokens",
        "6",
        "--rounds",
        "2",
    ]
    assert default.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("zoo:target: ") and len(lines) == 4 and "ANOTHER" not in "".join(lines)


def test_it_is_measured_beside_busy_programs(monkeypatch, capsys):
    beside, told = [], Outcome(clock=(1.0,), work=(1.0,), a_text=(1.0,), same=True, tau=1.0)

    @contextmanager
    def neighbours(count: int):
        beside.append(count)
        yield
        beside.clear()

    def measured(*given, **named) -> Outcome:
        assert beside == [2]
        return told

    monkeypatch.setattr(default, "busy_neighbours", neighbours)
    monkeypatch.setattr(default, "measure", measured)
    assert default.main(["zoo:target", "--batch", "1", "--text", "prose", "--neighbours", "2"]) == 0
    assert not beside and "Beside 2 busy programs." in capsys.readouterr().out


def test_another_text_is_said_and_fails(monkeypatch, capsys):
    told = Outcome(clock=(1.0, 3.0, 2.0), work=(0.5, 1.5, 1.0), a_text=(4.0, 3.5, 5.0), same=False, tau=2.5)
    monkeypatch.setattr(default, "measure", lambda *given, **named: told)
    assert default.main(["zoo:target", "--batch", "1", "--temperature", "0", "--text", "prose"]) == 1
    row = capsys.readouterr().out.splitlines()[-1]
    assert row.split() == [
        "1",
        "0.0",
        "prose",
        "2.00x",
        "1.00x",
        "1.00x",
        "0.50x",
        "4.00x",
        "3.50x",
        "2.50",
        "ANOTHER",
        "TEXT",
    ]


def test_what_cannot_be_loaded_is_said(tmp_path, capsys):
    assert default.main([str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("broken", [False, True])
def test_texts_are_compared(monkeypatch, broken: bool):
    class Fake:
        def __init__(self, ids: tuple[int, ...], ends: tuple[float, float]):
            self.ids, self.ends = ids, ends

            self.remembers = False

        def forget(self):
            self.remembers = False

        def generate(self, prompts, params):
            assert not self.remembers, "it could copy the text that it wrote before"
            self.remembers = True
            for end in self.ends:
                self.now = end
                self.watch.ended(None, end)
            stats = type("Stats", (), {"num_tokens": 4, "num_steps": 2})()
            return [type("Result", (), {"token_ids": self.ids, "stats": stats})() for _ in prompts]

    def listen(engine, make):
        clock[0], engine.watch, engine.now = engine, make(engine), 0.0
        return lambda: None

    clock = [None]
    monkeypatch.setattr(default, "listen", listen)
    monkeypatch.setattr(default.time, "perf_counter", lambda: clock[0].now)
    plain, own = Fake((1, 2), (6.0, 6.0)), Fake((1, 3 if broken else 2), (2.0, 6.0))
    told = default.measure(plain, own, Cell(batch=2, temperature=0.0, text="random"), vocab=9, max_tokens=2, rounds=3)
    assert told.same is not broken and told.tau == 2
    assert told.clock == (1.0,) * 3, "the last text ends when plain decoding's does"
    assert told.a_text == (1.5,) * 3, "6 seconds and 6, against 2 and 6"
