"""N-Grammys: tables that equal direct computation, a build that stops and goes on, and text and tables that add up."""

import logging
import os
import random

import numpy as np
import pytest
import torch
from drafters.drafting import Reciter, make, sequence, states, write

from outdraft.core.policy import Budget
from outdraft.drafters import ngrammys as cache
from outdraft.drafters.ngrammys import TableRows, empty_tables, fill
from outdraft.engine.runner import Runner
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import tiny_model

VOCAB = 200


class Port:
    """Scores one-token contexts by a table, and counts them."""

    vocab_size = VOCAB

    def __init__(self, table):
        self.table, self.num_scored = table, 0

    def score(self, ids):
        self.num_scored += len(ids)
        return self.table[ids[:, 0]]


@pytest.fixture
def port():
    torch.manual_seed(0)
    return Port(torch.randn(VOCAB, VOCAB) * 3)


def test_tables_equal_direct_computation():
    runner = Runner(tiny_model("llama", seed=2))
    tables = empty_tables(runner.vocab_size, 5)
    for _ in fill(tables, runner.port.layers.score, batch=7):
        pass
    distributions = torch.stack(
        [runner.port.layers.score(torch.tensor([[x]]))[0].softmax(-1) for x in range(runner.vocab_size)]
    )
    assert tables.ids.tolist() == distributions.topk(5).indices.tolist()
    assert np.allclose(tables.probs, distributions.topk(5).values, atol=1e-6)
    assert np.allclose(tables.total, distributions.sum(0), atol=1e-6)


def test_rows_follow_the_best_bigrams_while_they_are_worth_it():
    tables = empty_tables(4, 2)
    table = [[0.1, 0.2, 0.3, 0.4], [0.9, 0.1, 0, 0], [0.3, 0.7, 0, 0], [0, 0, 0.5, 0.5]]
    for _ in fill(tables, lambda ids: torch.tensor(table)[ids[:, 0]].log()):
        pass
    rows = TableRows(tables, everywhere=False, min_prob=0)
    assert [row.tokens for row in rows.after(0, 4)] == [[3, 2, 1, 0], [2, 1, 0, 3]]
    assert [row.count for row in rows.after(0, 4)] == pytest.approx([0.4, 0.3])
    worth = TableRows(tables, everywhere=False, min_prob=0.2)  # 3: .4, 2: .2, 1: .14;   2: .3, 1: .21, 0: .189
    assert [row.tokens for row in worth.after(0, 4)] == [[3, 2], [2, 1]]
    unigram = TableRows(tables, everywhere=True, min_prob=0)  # sums 1.3, 1.0, 0.8, 0.9
    assert [row.tokens for row in unigram.after(2, 2)] == [[0, 3], [1, 0]]
    assert [row.count for row in unigram.after(2, 2)] == pytest.approx([1.3 / 4, 1.0 / 4])


def test_made_once_for_each_model(port, tmp_path):
    first = cache.load_tables(port.score, VOCAB, width=4, directory=str(tmp_path))
    made = port.num_scored
    again = cache.load_tables(port.score, VOCAB, width=4, directory=str(tmp_path))
    assert made >= VOCAB and port.num_scored - made == 16  # only the fingerprint's
    assert again.complete and np.array_equal(first.ids, again.ids) and np.array_equal(first.total, again.total)
    assert len(list(tmp_path.iterdir())) == 1
    other = Port(port.table + 0.01 * torch.randn(VOCAB, VOCAB))
    cache.load_tables(other.score, VOCAB, width=4, directory=str(tmp_path))
    assert other.num_scored >= VOCAB and len(list(tmp_path.iterdir())) == 2


def test_an_interrupted_build_goes_on(port, tmp_path, monkeypatch):
    whole = cache.load_tables(port.score, VOCAB, width=4, directory=str(tmp_path / "whole"))
    monkeypatch.setattr(cache, "fill", lambda tables, score: fill(tables, score, batch=10))
    passes = 0

    def interrupted(ids):
        nonlocal passes
        passes += len(ids) == 10
        if passes == 4:
            raise KeyboardInterrupt
        return port.table[ids[:, 0]]

    with pytest.raises(KeyboardInterrupt):
        cache.load_tables(interrupted, VOCAB, width=4, directory=str(tmp_path / "part"))
    assert cache.read(next((tmp_path / "part").iterdir())).done == 30
    port.num_scored = 0
    resumed = cache.load_tables(port.score, VOCAB, width=4, directory=str(tmp_path / "part"))
    assert port.num_scored == 16 + VOCAB - 30
    assert np.array_equal(resumed.ids, whole.ids) and np.allclose(resumed.total, whole.total)


def test_progress_is_printed_and_kept(port, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(cache, "_SAVE_EVERY", 0)
    monkeypatch.setattr(cache, "fill", lambda tables, score: fill(tables, score, batch=20))
    with caplog.at_level(logging.WARNING):
        cache.load_tables(port.score, VOCAB, width=4, directory=str(tmp_path))
    assert [record.args[:2] for record in caplog.records] == [(done, VOCAB) for done in range(20, VOCAB, 20)]


def test_what_is_left_is_estimated_from_what_this_build_has_done(port, tmp_path, monkeypatch, caplog):
    """A build that goes on counts its own seconds and its own tokens: here a token a second."""
    monkeypatch.setattr(cache, "fill", lambda tables, score: fill(tables, score, batch=20))

    def interrupted(ids):
        if len(ids) == 20 and ids[0] == 100:
            raise KeyboardInterrupt
        return port.table[ids[:, 0]]

    with pytest.raises(KeyboardInterrupt):
        cache.load_tables(interrupted, VOCAB, width=4, directory=str(tmp_path))
    monkeypatch.setattr(cache, "_SAVE_EVERY", 0)
    monkeypatch.setattr(cache, "monotonic", lambda: float(port.num_scored))
    with caplog.at_level(logging.WARNING):
        cache.load_tables(port.score, VOCAB, width=4, directory=str(tmp_path))
    assert [record.args[:3] for record in caplog.records] == [(n, VOCAB, VOCAB - n) for n in (120, 140, 160, 180)]


def test_an_unreadable_file_is_made_again(port, tmp_path, caplog):
    cache.load_tables(port.score, VOCAB, width=4, directory=str(tmp_path))
    path = next(tmp_path.iterdir())
    path.write_bytes(path.read_bytes()[:50])
    assert cache.load_tables(port.score, VOCAB, width=4, directory=str(tmp_path)).complete
    assert "made again" in caplog.text


def test_the_users_cache_directory(port, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    make("ngrammys", port)
    assert len(list((tmp_path / "outdraft" / "ngrammys").iterdir())) == 1


def test_a_place_that_cannot_be_written_to_is_named_before_the_work(port, tmp_path):
    (tmp_path / "file").write_text("")
    cache.load_tables(port.score, VOCAB, width=16, directory=str(tmp_path / "taken"))
    (kept,) = (tmp_path / "taken").iterdir()
    kept.unlink()
    kept.mkdir()  # a folder where the file is wanted: not even root can replace it
    port.num_scored = 0
    for place in (tmp_path / "file", tmp_path / "file" / "below", kept.parent):
        with pytest.raises(ConfigError, match=rf"cache_dir='{place}' cannot be written to: .*; name another directory"):
            make("ngrammys", port, cache_dir=str(place))
    assert port.num_scored == 3 * 16  # the fingerprints'
    assert [*kept.parent.iterdir()] == [kept]  # nothing half written


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_place_is_named(port, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="Permission denied"):
        make("ngrammys", port, cache_dir=str(tmp_path))


def test_a_disk_that_fills_leaves_what_was_kept(port, tmp_path, monkeypatch):
    def full(path, **arrays):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.np, "savez", full)
    with pytest.raises(ConfigError, match="No space left"):
        make("ngrammys", port, cache_dir=str(tmp_path))
    assert not [*tmp_path.iterdir()]


def test_text_first_then_the_table(port, tmp_path):
    drafter, seq = make("ngrammys", port, rows=3, cache_dir=str(tmp_path)), sequence([1, 2, 1, 2, 1, 3, 1])
    drafter.begin([seq])
    best = [token for token in port.table[1].topk(3).indices.tolist()]
    wanted = list(dict.fromkeys([2, 3, best[0]]))
    assert drafter.propose([seq], [Budget(depth=1)])[0].tokens[1:].tolist() == wanted
    assert drafter.propose([seq], [Budget(depth=1, nodes=1)])[0].tokens[1:].tolist() == [2]  # the more frequent one
    deep = drafter.propose([seq], [Budget(depth=3, nodes=30)])[0]  # three rows that occurred once: the latest first
    assert deep.tokens.tolist() == [1, 3, 1, 2, 1, 3, 2]
    assert deep.parents.tolist() == [-1, 0, 1, 0, 3, 4, 4]
    one = make("ngrammys", port, rows=1, cache_dir=str(tmp_path))
    one.begin([seq])
    assert one.propose([seq], [Budget(depth=1)])[0].tokens[1:].tolist() == [2]
    drafter.end([seq])
    assert all(not state for state in states(drafter).values())


def text_rows(port, text, **options):
    """What the text alone brings for the next token."""
    drafter, seq = make("ngrammys", port, table="none", **options), sequence(text)
    drafter.begin([seq])
    return drafter.propose([seq], [Budget(depth=1)])[0].tokens[1:].tolist()


def test_so_many_tokens_must_match_and_no_fewer(port):
    text = [1, 2, 3, 9, 2, 4, 5, 2]  # "5 2" is new, "2" is not
    assert text_rows(port, text, query=1) == [4, 3]
    assert text_rows(port, text, query=2) == []
    assert text_rows(port, [*text, 6, 1, 2], query=2) == [3]


def test_the_latest_places_of_a_common_token_are_compared_and_no_more(port):
    """Of sixty-four places; older ones are not looked at, however often they agreed."""
    assert text_rows(port, [1, 7] * 100 + [1, 8] * 64 + [1]) == [8]
    assert text_rows(port, [1, 7] * 100 + [1, 8] * 63 + [1]) == [8, 7]


def mixed_stream(port):
    """Blocks that the bigrams do not know, each copied once, and walks along the two best bigrams, by turns."""
    dice, text = random.Random(3), []
    best = port.table.topk(2).indices.tolist()
    for _ in range(8):
        text += [dice.randrange(VOCAB) for _ in range(20)] * 2
        for _ in range(40):
            text.append(dice.choice(best[text[-1]]))
    return text


def tokens_per_pass(port, tmp_path, **options):
    text = mixed_stream(port)
    drafter = make("ngrammys", port, cache_dir=str(tmp_path), **options)
    seq = sequence(text[:1], max_tokens=len(text) - 1)
    run = write([seq], Reciter(text, VOCAB), drafter, k=6)
    assert seq.tokens == text
    return run.tokens_per_pass


def test_text_and_tables_together_beat_both_alone(port, tmp_path):
    both = tokens_per_pass(port, tmp_path)
    assert both > 1.1 * tokens_per_pass(port, tmp_path, table="none")
    assert both > 1.1 * tokens_per_pass(port, tmp_path, context=False)


def test_more_rows_are_never_worse(port, tmp_path):
    rates = [tokens_per_pass(port, tmp_path, rows=rows) for rows in (1, 2, 4, 8, 16)]
    assert rates == sorted(rates) and rates[-1] > 1.2 * rates[0]


def test_unigram_rows_are_the_same_everywhere(port, tmp_path):
    drafter = make("ngrammys", port, table="unigram", context=False, rows=2, cache_dir=str(tmp_path))
    seqs = [sequence([1, 2]), sequence([5])]
    drafter.begin(seqs)
    best = port.table.softmax(-1).mean(0).topk(2).indices.tolist()
    for draft in drafter.propose(seqs, [Budget(depth=1)] * 2):
        assert draft.tokens[1:].tolist() == best


@pytest.mark.parametrize(
    "bad", [{"rows": 0}, {"query": 0}, {"table": "trigram"}, {"min_prob": 1}, {"context": False, "table": "none"}]
)
def test_bad_options(bad, port):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        make("ngrammys", port, **bad)
