"""MagicDec: enough budget agrees always, views hold what was chosen as it stands in the target's cache."""

import pytest
import torch
from drafters.drafting import make, sequence, write

from outdraft.cache.config import CacheConfig
from outdraft.core.policy import Budget
from outdraft.drafters import magicdec
from outdraft.drafters.magicdec import snapkv_rows, streaming_rows
from outdraft.drafters.shared.own_layers.sparse_view import last_queries
from outdraft.engine.runner import Runner
from outdraft.models.networks.port import TargetRows
from outdraft.options.errors import ConfigError
from outdraft.testing.audit import CacheRecheck
from outdraft.testing.tiny import tiny_model

MODEL = tiny_model(layers=3, vocab=31)
PROMPTS = ([1, 2, 3] * 7, [4], [5, 6] * 15)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def as_in_the_loop():
    with torch.inference_mode():
        yield


def share(max_tokens=24, each_step=None, **options):
    """Accepted of offered tokens."""
    runner = Runner(MODEL)
    drafter = make("magicdec", runner, **options)
    seqs = [sequence(prompt, max_tokens=max_tokens) for prompt in PROMPTS]
    look = None if each_step is None else lambda live: each_step(runner, drafter, live)
    events = write(seqs, runner, drafter, k=4, each_step=look).events
    assert not drafter.views._copied and not drafter.views._chosen_at
    return sum(event.num_accepted for event in events) / sum(event.num_draft_tokens for event in events)


@pytest.mark.parametrize("select", ["streaming", "snapkv"])
def test_a_budget_that_holds_the_text_is_always_accepted(select):
    assert share(select=select, budget=60, observe=8) > 0.9
    assert share(select=select, budget=9, sinks=2, observe=8, refresh=4) < 0.8


def test_a_view_holds_exact_rows_of_the_text_and_touches_none():
    sizes = []

    def look(runner, drafter, live):
        recheck = CacheRecheck(runner)
        for seq in live:
            recheck(seq, seq.tokens[:-1])
            views, n = drafter.views, drafter.views.rows.length(seq.id)
            sizes.append(n)
            if n == 0:
                continue  # the prompt was read a moment ago
            copied, chosen_at = views._copied[seq.id], views._chosen_at[seq.id]
            since = list(range(chosen_at, copied))
            expected = [*streaming_rows(chosen_at, 2, 9, CPU).tolist(), *since] if chosen_at else since
            for layer in range(3):
                for ours, theirs in zip(
                    views.rows.read(seq.id, layer, n), runner.port.rows.read(seq, layer), strict=True
                ):
                    assert torch.equal(ours, theirs[:, expected])

    share(budget=9, sinks=2, refresh=4, each_step=look, max_tokens=30)
    assert max(sizes) <= 9 + 4 + 5 and max(sizes) > 9


@pytest.mark.parametrize("layout", ["static", "paged"])
def test_a_round_reads_what_came_and_not_the_whole_text(layout, monkeypatch):
    """Of a cache of bytes, which turns into floats all that is read."""
    runner = Runner(MODEL, cache=CacheConfig(layout=layout, dtype="int8"))
    drafter = make("magicdec", runner, budget=60)
    read, most = TargetRows.read, [0]  # rows of the longest reading of each step

    def watched(self, *arguments):
        k, v = read(self, *arguments)
        most[-1] = max(most[-1], k.shape[1])
        return k, v

    def look(live):
        n = drafter.views.rows.length(live[0].id)
        for layer in range(3 if n else 0):
            theirs = read(runner.port.rows, live[0], layer)
            for ours, whole in zip(drafter.views.rows.read(live[0].id, layer, n), theirs, strict=True):
                assert torch.equal(ours, whole[:, :n])
        most.append(0)

    monkeypatch.setattr(TargetRows, "read", watched)
    write([sequence(PROMPTS[0], max_tokens=24)], runner, drafter, k=4, each_step=look)
    assert most[1] == len(PROMPTS[0]) and 0 < max(most[2:]) <= 5


def test_streaming_keeps_sinks_and_window():
    assert streaming_rows(20, 2, 7, CPU).tolist() == [0, 1, 15, 16, 17, 18, 19]
    assert streaming_rows(7, 2, 7, CPU).tolist() == list(range(7))
    assert streaming_rows(4, 2, 7, CPU).tolist() == list(range(4))


def test_snapkv_keeps_what_the_window_looks_at():
    keys = torch.zeros(2, 100, 8)
    keys[0, 40] = keys[1, 70] = 10.0
    queries = torch.ones(4, 6, 8)
    rows = snapkv_rows(keys, queries, 15)
    assert rows.shape == (2, 15)
    for head, planted in ((0, 40), (1, 70)):
        chosen = rows[head].tolist()
        assert chosen == sorted(set(chosen)) and chosen[-4:] == [96, 97, 98, 99]
        assert set(range(planted - 3, planted + 4)) <= set(chosen)


def test_queries_of_the_last_rows_do_not_depend_on_how_many_are_asked_and_touch_nothing():
    runner = Runner(MODEL)
    seq = sequence([3, 1, 4, 1, 5, 9, 2, 6], k=0)
    with pytest.raises(ZeroDivisionError):
        write([seq], runner, make("none"), each_step=lambda _: 1 / 0)
    found = last_queries(runner.port, seq, 3)
    whole = last_queries(runner.port, seq, seq.num_cached)
    assert sorted(found) == [0, 1, 2]
    for layer, queries in found.items():
        assert queries.shape == (3, 4, 8)
        torch.testing.assert_close(queries, whole[layer][-3:], atol=1e-9, rtol=0)
    CacheRecheck(runner)(seq, seq.tokens[:-1])


@pytest.mark.parametrize(("max_len", "is_asked"), [(30, True), (29, True), (28, False)])
def test_queries_are_asked_where_there_is_room_for_their_rows(max_len, is_asked, monkeypatch):
    """Else, at the end of the context, the plain window is taken."""
    runner, asked = Runner(MODEL), []
    drafter = make("magicdec", runner, select="snapkv", budget=9, observe=8)
    seq = sequence([1, 2, 3] * 7, k=0)
    with pytest.raises(ZeroDivisionError):
        write([seq], runner, make("none"), each_step=lambda _: 1 / 0)
    assert seq.num_cached == 21
    seq.max_len = max_len
    monkeypatch.setattr(magicdec, "last_queries", lambda *given: asked.append(given) or last_queries(*given))
    drafter.begin([seq])
    assert drafter.propose([seq], [Budget(depth=2)])[0].num_nodes == 3
    assert bool(asked) == is_asked and drafter.views.rows.length(seq.id) == 9


@pytest.mark.parametrize(
    "bad", [{"select": "x"}, {"budget": 4}, {"select": "snapkv", "budget": 32}, {"refresh": 0}, {"sample": "x"}]
)
def test_bad_options(bad):
    with pytest.raises(ConfigError, match=list(bad)[-1]):
        make("magicdec", Runner(MODEL), **bad)
