"""Pages that later texts take over: never another text's rows, never a row that is being written, never a page lost."""

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from outdraft.cache.paged import PagedCache
from outdraft.cache.pool import PagePool
from outdraft.core.cache import PAGE
from outdraft.options.errors import CacheFullError, CapabilityError

MAX_LEN = 150


def new_cache(num_pages=None, **others):
    return PagedCache(2, 1, 2, torch.float32, "cpu", MAX_LEN, num_pages=num_pages, poison=True, **others)


def values_of(salt, tokens):
    """A number for each row that only this text up to it has."""
    return [float(hash((salt, *tokens[: i + 1])) % 1_000_003) for i in range(len(tokens))]


def write(cache, seq, salt, tokens):
    """Read the rest of a text: rows from the sequence's length on."""
    start = cache.length(seq)
    new = torch.tensor(values_of(salt, tokens)[start:])
    cache.reserve(seq, len(new))
    for layer in range(2):
        rows = (new + layer)[:, None, None].expand(-1, 1, 2)
        cache.write(seq, layer, start, rows, -rows)
    cache.commit(seq, range(len(new)))


def holds(cache, seq, salt, tokens):
    n = cache.length(seq)
    wanted = torch.tensor(values_of(salt, tokens)[:n])
    k, v = cache.read(seq, 1, n)
    return k[0, :, 0].equal(wanted + 1) and v[0, :, 1].equal(-wanted - 1)


class Machine(RuleBasedStateMachine):
    """Texts over two tokens, so that beginnings are often equal."""

    @initialize(num_pages=st.sampled_from([None, 6, 20]))
    def begin(self, num_pages):
        self.cache = new_cache(num_pages)
        self.texts = {}  # sequence -> salt, tokens of its rows
        self.next = 0

    def teardown(self):
        for seq in list(getattr(self, "texts", ())):
            self.cache.free(seq)
        if hasattr(self, "cache"):
            self.cache.store.forget()
            self.cache.check()
            assert self.cache.store.num_kept == 0 and self.cache.num_free == len(self.cache.store._owners)

    def look(self):
        self.cache.check()
        for seq, (salt, tokens) in self.texts.items():
            assert self.cache.length(seq) == len(tokens) and holds(self.cache, seq, salt, tokens)

    def tokens(self, data):
        blocks = data.draw(st.lists(st.sampled_from([1, 2]), max_size=6))
        return [block for block in blocks for _ in range(PAGE)] + [3] * data.draw(st.integers(0, 5))

    @rule(data=st.data(), salt=st.sampled_from(["a", "b"]))
    def begin_one(self, data, salt):
        tokens, seq = self.tokens(data), self.next
        self.next += 1
        self.cache.add(seq)
        found = self.cache.adopt(seq, salt, tokens)
        assert found % PAGE == 0 and found <= len(tokens)
        self.texts[seq] = salt, tokens[:found]
        self.grow(seq, salt, tokens)

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def go_on(self, data):
        seq = data.draw(st.sampled_from(sorted(self.texts)))
        salt, tokens = self.texts[seq]
        self.grow(seq, salt, [*tokens, *self.tokens(data)][:MAX_LEN])

    def grow(self, seq, salt, tokens):
        try:
            write(self.cache, seq, salt, tokens)
            self.texts[seq] = salt, tokens
        except CacheFullError:
            self.cache.truncate(seq, self.cache.length(seq))
        self.look()

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def publish(self, data):
        seq = data.draw(st.sampled_from(sorted(self.texts)))
        salt, tokens = self.texts[seq]
        self.cache.publish(seq, salt, tokens)
        self.look()

    @precondition(lambda self: self.texts)
    @rule(data=st.data(), ends=st.booleans())
    def take_back(self, data, ends):
        seq = data.draw(st.sampled_from(sorted(self.texts)))
        if ends:
            self.cache.free(seq)
            del self.texts[seq]
        else:
            salt, tokens = self.texts[seq]
            length = data.draw(st.integers(0, len(tokens)))
            try:
                self.cache.truncate(seq, length)
            except CacheFullError:  # a copy of a shared page needs one
                return
            self.texts[seq] = salt, tokens[:length]
        self.look()

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def fork(self, data):
        seq = data.draw(st.sampled_from(sorted(self.texts)))
        try:
            self.cache.fork(seq, self.next)
        except CacheFullError:
            return
        self.texts[self.next] = self.texts[seq]
        self.next += 1
        self.look()

    @rule()
    def forget(self):
        self.cache.store.forget()
        self.look()


TestPrefixes = Machine.TestCase
TestPrefixes.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def read(cache, seq, salt, tokens):
    cache.add(seq)
    found = cache.adopt(seq, salt, tokens)
    write(cache, seq, salt, tokens)
    cache.publish(seq, salt, tokens)
    return found


TEXT = list(range(100, 150))  # three full pages


def test_a_later_text_adopts_full_pages_of_the_same_beginning_alone():
    cache = new_cache(20)
    assert read(cache, 0, None, TEXT) == 0
    assert read(cache, 1, None, TEXT) == 48
    assert cache.pages(0)[:3] == cache.pages(1)[:3]
    assert read(cache, 2, None, [*TEXT[:20], 7, *TEXT[21:]]) == 16
    assert read(cache, 3, "of another text", TEXT) == 0
    assert read(cache, 4, None, TEXT[16:]) == 0  # the same tokens elsewhere in a text are other rows


def test_pages_are_kept_after_their_text_and_go_when_room_is_wanted_the_oldest_first():
    cache = new_cache(8)
    read(cache, 0, None, TEXT)
    cache.free(0)
    assert cache.num_free == 8 and cache.store.num_kept == 3
    other = [1] * 40
    read(cache, 1, None, other)
    cache.free(1)
    assert cache.store.num_kept == 5
    read(cache, 2, None, [2] * 79)  # five pages, three are free
    assert cache.store.num_kept == 3
    cache.free(2)
    cache.add(3)
    assert cache.adopt(3, None, other) == 32
    assert cache.adopt(4, None, TEXT) == 16 if cache.add(4) is None else None  # its end went first


def test_the_same_text_written_twice_at_once_is_held_once():
    cache = new_cache(20)
    for seq in (0, 1):
        cache.add(seq)
        write(cache, seq, None, TEXT)
    assert cache.num_free == 12
    cache.publish(0, None, TEXT)
    cache.publish(1, None, TEXT)
    assert cache.num_free == 15 and cache.pages(0)[:3] == cache.pages(1)[:3] and cache.num_own(1) == 1
    cache.check()


def test_who_cuts_into_a_published_page_leaves_it_as_it_is():
    cache = new_cache(20)
    read(cache, 0, None, TEXT)
    cache.truncate(0, 40)
    write(cache, 0, None, [*TEXT[:40], 7, 7, 7])
    cache.add(1)
    assert cache.adopt(1, None, TEXT) == 48 and holds(cache, 1, None, TEXT)
    assert holds(cache, 0, None, [*TEXT[:40], 7, 7, 7])
    cache.check()


def test_what_a_sequence_lacks_and_has_alone_is_counted():
    cache = new_cache(20)
    read(cache, 0, None, TEXT)
    assert cache.num_missing(0, 14) == 0 and cache.num_missing(0, 15) == 1 and cache.num_own(0) == 4


def test_one_pool_of_bytes_gives_every_cache_as_many_pages():
    pool = PagePool(num_bytes=10_000)
    small, large = new_cache(pool=pool), PagedCache(4, 1, 2, torch.float32, "cpu", MAX_LEN, pool=pool)
    assert (small.store.page_bytes, large.store.page_bytes) == (512, 1024)
    assert small.num_pages == large.num_pages == 6
    with pytest.raises(CapabilityError, match="before the first request"):
        new_cache(pool=pool)
    with pytest.raises(CapabilityError, match=r"kv_cache_memory=100 bytes holds no page.* 512 bytes"):
        _ = new_cache(pool=PagePool(num_bytes=100)).num_pages
