"""States that cannot trim, against a naive model: what each sequence has read, and what was published."""

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from outdraft.cache.config import CacheConfig
from outdraft.cache.pool import PagePool
from outdraft.cache.state import StateStore
from outdraft.core.cache import PAGE
from outdraft.options.errors import CacheFullError, CapabilityError
from tests.helpers.state_copies import CopiedStates

EMPTY = torch.zeros(2, 3, dtype=torch.float64)


def store_of(slots):
    return CopiedStates(EMPTY, pool=PagePool(num_pages=slots), poison=True)


def state_of(tokens, salt=None):
    """A state that only this text has."""
    return torch.full((2, 3), float(hash((tuple(tokens), salt)) % 2**40), dtype=torch.float64)


def read(store, seq, tokens, n):
    """The sequence reads n tokens more of this text."""
    stop = store.length(seq) + n
    store.advance(seq, n, state_of(tokens[:stop]))


class Machine(RuleBasedStateMachine):
    @initialize(slots=st.integers(1, 7))
    def begin(self, slots):
        self.store = store_of(slots)
        self.texts: dict[int, list[int]] = {}
        self.copies: dict[int, set[int]] = {}
        self.next_seq = 0

    def some(self, data):
        return data.draw(st.sampled_from(sorted(self.texts)))

    @rule(stem=st.integers(0, 2), n=st.integers(0, 4))
    def add(self, stem, n):
        seq, self.next_seq = self.next_seq, self.next_seq + 1
        if not self.store.num_free:
            with pytest.raises(CacheFullError, match=f"all {self.store.num_slots} slots are taken"):
                self.store.add(seq)
            return
        self.store.add(seq)
        text = [stem] * n * PAGE
        self.texts[seq], self.copies[seq] = text[: self.store.adopt(seq, None, text)], set()

    @precondition(lambda self: self.texts)
    @rule(data=st.data(), token=st.integers(0, 2), n=st.integers(1, 2 * PAGE))
    def read(self, data, token, n):
        seq = self.some(data)
        for _ in range(n):
            self.texts[seq].append(token)
            read(self.store, seq, self.texts[seq], 1)
            if len(self.texts[seq]) % PAGE == 0:
                self.store.publish(seq, None, self.texts[seq])

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def snapshot(self, data):
        seq = self.some(data)
        if self.store.num_free:
            self.store.snapshot(seq)
            self.copies[seq].add(len(self.texts[seq]))

    @precondition(lambda self: any(self.copies.values()))
    @rule(data=st.data())
    def restore(self, data):
        seq = data.draw(st.sampled_from([seq for seq, lengths in self.copies.items() if lengths]))
        length = data.draw(st.sampled_from(sorted(self.copies[seq])))
        self.store.restore(seq, length)
        del self.texts[seq][length:]
        self.copies[seq] = {at for at in self.copies[seq] if at < length}

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def free(self, data):
        seq = self.some(data)
        self.store.free(seq)
        del self.texts[seq], self.copies[seq]

    @rule()
    def forget(self):
        self.store.forget()
        assert not self.store._prefixes.kept

    @invariant()
    def every_state_is_its_own_texts(self):
        self.store.check()
        for seq, text in self.texts.items():
            assert self.store.length(seq) == len(text)
            assert torch.equal(self.store.state(seq), state_of(text) if text else EMPTY)
        taken = len(self.texts) + sum(map(len, self.copies.values()))
        assert self.store.num_free == self.store.num_slots - taken


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


def published(store, seq, tokens):
    """A sequence that has read this text and left copies of it."""
    store.add(seq)
    for stop in range(PAGE, len(tokens) + 1, PAGE):
        read(store, seq, tokens, PAGE)
        assert store.publish(seq, None, tokens[:stop])
    store.free(seq)


def test_the_least_recently_used_copy_goes_first():
    store = store_of(3)
    texts = [[stem] * PAGE for stem in (1, 2, 3)]
    published(store, 0, texts[0])
    published(store, 1, texts[1])
    store.add(2)
    assert store.adopt(2, None, texts[0]) == PAGE  # used again, so the other one goes
    store.free(2)
    published(store, 3, texts[2])
    found = []
    for seq, text in enumerate(texts, 4):
        store.add(seq)
        found.append(store.adopt(seq, None, text))
        store.free(seq)
    assert found == [PAGE, 0, PAGE]


def test_another_salt_finds_nothing():
    store = store_of(4)
    published(store, 0, [1] * PAGE)
    store.add(1)
    assert store.adopt(1, "b", [1] * PAGE) == 0


def test_a_pool_has_a_state_for_each_page_of_rows():
    pool = PagePool(num_bytes=10_000)
    rows = CacheConfig(layout="paged", pool=pool).build(1, 1, 4, torch.float32, "cpu", 64)
    store = CopiedStates(EMPTY, pool=pool)
    assert pool.bytes_each == rows.store.page_bytes + EMPTY.numel() * 8
    assert store.num_slots == rows.num_pages == 10_000 // (rows.store.page_bytes + 48)
    published(store, 0, [1] * PAGE)
    pool.forget()
    assert store.num_free == store.num_slots and not store._prefixes.kept


def test_what_is_refused():
    store = store_of(2)
    store.add(0)
    with pytest.raises(CapabilityError, match="sequence 0 exists already"):
        store.add(0)
    with pytest.raises(CapabilityError, match=r"sequence 0 cannot go back to 0 rows: it has copies of \[\]"):
        store.restore(0, 0)
    read(store, 0, [1] * 20, 17)
    with pytest.raises(CapabilityError, match="has read 17 rows and would publish 16"):
        store.publish(0, None, [1] * 16)
    full = StateStore(EMPTY, pool=PagePool(num_pages=1))
    full.add(0)
    with pytest.raises(CacheFullError, match="all 1 slots are taken: run fewer"):
        full.add(1)


def test_check_finds_a_shared_slot_and_a_write_into_a_free_one():
    store = StateStore(EMPTY, poison=True)
    store.add(0)
    store._states[store._free[-1]] = 1.0
    with pytest.raises(AssertionError, match="a free slot was written"):
        store.check()
    store = StateStore(EMPTY)
    store.add(0)
    store.add(1)
    store._entries[1].slot = store._entries[0].slot
    with pytest.raises(AssertionError, match=r"slots .* are named"):
        store.check()
