"""The static cache against a naive model: a list of rows for each sequence."""

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from outdraft.cache.static import StaticCache
from outdraft.core.cache import KVCache
from outdraft.core.errors import CapabilityError

LAYERS, HEADS, WIDTH, MAX_LEN = 2, 3, 4, 300


def new_cache(poison=True) -> KVCache:
    return StaticCache(LAYERS, HEADS, WIDTH, torch.float32, "cpu", MAX_LEN, poison=poison)


def write(cache, seq, slot, value):
    """What a pass does: row `value` in every layer, K and V told apart."""
    for layer in range(LAYERS):
        keys, values = cache.layer_view(seq, layer)
        keys[:, slot] = value + 0.25 * layer
        values[:, slot] = -value - 0.25 * layer


def read(cache, seq):
    rows = []
    for slot in range(cache.length(seq)):
        first = {float(cache.layer_view(seq, layer)[0][head, slot, channel]) - 0.25 * layer
                 for layer in range(LAYERS) for head in range(HEADS) for channel in (0, WIDTH - 1)}  # fmt: skip
        second = {-float(cache.layer_view(seq, layer)[1][head, slot, channel]) - 0.25 * layer
                  for layer in range(LAYERS) for head in range(HEADS) for channel in (0, WIDTH - 1)}  # fmt: skip
        assert first == second and len(first) == 1, (slot, first, second)
        rows.append(first.pop())
    return rows


class Machine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.cache = new_cache()
        self.rows: dict[int, list[float]] = {}
        self.next_value = 1.0
        self.next_seq = 0

    def some(self, data):
        return data.draw(st.sampled_from(sorted(self.rows)))

    @rule()
    def add(self):
        self.cache.add(self.next_seq)
        self.rows[self.next_seq] = []
        self.next_seq += 1

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), n=st.integers(0, 90))
    def run_a_pass_and_commit_a_path(self, data, n):
        seq = self.some(data)
        n = min(n, MAX_LEN - len(self.rows[seq]))
        self.cache.reserve(seq, n)
        length = len(self.rows[seq])
        values = [self.next_value + i for i in range(n)]
        self.next_value += n
        for i, value in enumerate(values):
            write(self.cache, seq, length + i, value)
        if n > 1 and data.draw(st.booleans()):  # a second pass stacked on the first one
            self.cache.reserve(seq, min(n + 40, MAX_LEN - length))
        keep = sorted(data.draw(st.sets(st.integers(0, n - 1)))) if n else []
        if data.draw(st.booleans()):
            keep = list(range(len(keep)))
        self.cache.commit(seq, keep)
        self.rows[seq] += [values[i] for i in keep]

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def truncate(self, data):
        seq = self.some(data)
        length = data.draw(st.integers(0, len(self.rows[seq])))
        self.cache.truncate(seq, length)
        del self.rows[seq][length:]

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def fork(self, data):
        seq = self.some(data)
        self.cache.fork(seq, self.next_seq)
        self.rows[self.next_seq] = list(self.rows[seq])
        self.next_seq += 1

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def free(self, data):
        seq = self.some(data)
        self.cache.free(seq)
        del self.rows[seq]

    @invariant()
    def same_rows(self):
        self.cache.check()
        for seq, rows in self.rows.items():
            assert read(self.cache, seq) == rows


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)


def test_growth_keeps_tentative_rows():
    cache = new_cache()
    cache.add(0)
    cache.reserve(0, 2)
    write(cache, 0, 0, 5.0)
    write(cache, 0, 1, 6.0)
    cache.reserve(0, 290)
    cache.commit(0, [1])
    assert read(cache, 0) == [6.0]


def test_dropped_rows_are_poisoned():
    cache = new_cache()
    cache.add(0)
    cache.reserve(0, 3)
    for slot in range(3):
        write(cache, 0, slot, 1.0)
    cache.commit(0, [0])
    assert cache.layer_view(0, 0)[0][:, 1:3].isnan().all()
    cache.truncate(0, 0)
    assert cache.layer_view(0, 1)[1].isnan().all()


def test_what_is_refused():
    cache = new_cache()
    cache.add(0)
    with pytest.raises(CapabilityError, match="exists already"):
        cache.add(0)
    with pytest.raises(CapabilityError, match="max_len is 300"):
        cache.reserve(0, 301)
    cache.reserve(0, 3)
    with pytest.raises(CapabilityError, match=r"rows \[3\]"):
        cache.commit(0, [3])
    with pytest.raises(CapabilityError, match="truncate to 1"):
        cache.truncate(0, 1)


def test_check_finds_writes_in_the_wrong_place():
    cache = new_cache()
    cache.add(0)
    cache.reserve(0, 2)
    write(cache, 0, 0, 1.0)
    write(cache, 0, 2, 1.0)
    with pytest.raises(AssertionError, match="beyond"):
        cache.check()
    cache = new_cache()
    cache.add(0)
    cache.reserve(0, 2)
    write(cache, 0, 0, 1.0)
    cache.commit(0, [0, 1])
    with pytest.raises(AssertionError, match="never written"):
        cache.check()
