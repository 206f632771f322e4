"""Every cache against a naive model: a list of rows for each sequence."""

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from outdraft.cache.config import CacheConfig
from outdraft.cache.static import StaticCache
from outdraft.core.cache import PAGE, KVCache
from outdraft.options.errors import CapabilityError, ConfigError

LAYERS, HEADS, WIDTH, MAX_LEN = 2, 3, 4, 300
CONFIGS = {
    f"{layout} {dtype}": CacheConfig(layout=layout, dtype=dtype, poison=True)
    for layout in ("static", "paged")
    for dtype in ("auto", "int8")
}
each_cache = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def new_cache(config: CacheConfig) -> KVCache:
    return config.build(LAYERS, HEADS, WIDTH, torch.float32, "cpu", MAX_LEN)


def rows_of(value: float, layer: int, n: int = 1):
    """K and V of n rows that only this value and layer have; exact in bytes, for a row's largest stays what it is."""
    k = torch.tensor([value + i + 0.25 * layer for i in range(n)])[:, None, None].expand(n, HEADS, WIDTH)
    return k, -k


def write(cache, seq, slot, value, n=1):
    """What a pass does: rows `value`, `value` + 1, ... in every layer."""
    for layer in range(LAYERS):
        cache.write(seq, layer, slot, *rows_of(value, layer, n))


def read(cache, seq):
    """The rows' values, after a look at every layer and head."""
    n = cache.length(seq)
    pairs = [cache.read(seq, layer, n) for layer in range(LAYERS)]
    found = torch.stack([torch.stack([k - 0.25 * layer, -v - 0.25 * layer]) for layer, (k, v) in enumerate(pairs)])
    flat = found.permute(3, 0, 1, 2, 4).flatten(1)  # [n, everything]
    rows = [float(row[0].round()) for row in flat]
    assert torch.allclose(flat, torch.tensor(rows)[:, None].expand_as(flat), rtol=1e-5), flat
    return rows


class Machine(RuleBasedStateMachine):
    @initialize(config=st.sampled_from(list(CONFIGS.values())))
    def begin(self, config):
        self.cache = new_cache(config)
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
        write(self.cache, seq, length, self.next_value, n)
        self.next_value += n
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
            self.from_some_row_on(seq)
            self.kernels_see_the_same(seq)

    def from_some_row_on(self, seq):
        n = self.cache.length(seq)
        for start in {n // 3, n}:
            for part, whole in zip(self.cache.read(seq, 1, n, start), self.cache.read(seq, 1, n), strict=True):
                assert torch.equal(part, whole[:, start:])

    def kernels_see_the_same(self, seq):
        memory, n = self.cache.memory(seq), self.cache.length(seq)
        for layer in range(LAYERS):
            for stored, scales, expected in zip(
                (memory.keys, memory.values),
                (memory.key_scales, memory.value_scales),
                self.cache.read(seq, layer, n),
                strict=True,
            ):
                for slot in {0, n // 2, n - 1} if n else ():
                    at = (layer, int(memory.table[slot // PAGE]), slice(None), slot % PAGE)
                    row = stored[at] if scales is None else stored[at] * scales[at][:, None]
                    assert torch.equal(row, expected[:, slot])


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=15, deadline=None)


@each_cache
def test_growth_keeps_tentative_rows(config):
    cache = new_cache(config)
    cache.add(0)
    cache.reserve(0, 2)
    write(cache, 0, 0, 5.0, 2)
    cache.reserve(0, 290)
    cache.commit(0, [1])
    assert read(cache, 0) == [6.0]


@each_cache
def test_dropped_rows_are_poisoned(config):
    cache = new_cache(config)
    cache.add(0)
    cache.reserve(0, 3)
    write(cache, 0, 0, 1.0, 3)
    cache.commit(0, [0])
    assert cache.read(0, 0, 3)[0][:, 1:].isnan().all()
    cache.truncate(0, 0)
    cache.reserve(0, 3)
    assert cache.read(0, 1, 3)[1].isnan().all()


@each_cache
def test_what_is_refused(config):
    cache = new_cache(config)
    cache.add(0)
    with pytest.raises(CapabilityError, match="exists already"):
        cache.add(0)
    with pytest.raises(CapabilityError, match="exists already"):
        cache.fork(0, 0)
    with pytest.raises(CapabilityError, match="max_len is 300"):
        cache.reserve(0, 301)
    cache.reserve(0, 3)
    with pytest.raises(CapabilityError, match=r"rows \[3\]"):
        cache.commit(0, [3])
    with pytest.raises(CapabilityError, match="truncate to 1"):
        cache.truncate(0, 1)


@each_cache
def test_check_finds_writes_in_the_wrong_place(config):
    cache = new_cache(config)
    cache.add(0)
    cache.reserve(0, 2)
    write(cache, 0, 0, 1.0)
    write(cache, 0, 2, 1.0)
    with pytest.raises(AssertionError, match="beyond"):
        cache.check()
    cache = new_cache(config)
    cache.add(0)
    cache.reserve(0, 2)
    write(cache, 0, 0, 1.0)
    cache.commit(0, [0, 1])
    with pytest.raises(AssertionError, match="never written"):
        cache.check()


def test_an_unknown_cache_is_named():
    with pytest.raises(ConfigError, match="kv_cache='ring': it is one of static, paged"):
        CacheConfig(layout="ring")
    with pytest.raises(ConfigError, match="kv_cache_dtype='fp8'"):
        CacheConfig(dtype="fp8")


def filled(cache, seq, n, value=1.0):
    """A new sequence with n committed rows `value`, `value` + 1, ..."""
    cache.add(seq)
    cache.reserve(seq, n)
    write(cache, seq, 0, value, n)
    cache.commit(seq, list(range(n)))
    return [value + i for i in range(n)]


@each_cache
def test_a_fork_holds_the_same_rows_and_goes_its_own_way(config):
    cache = new_cache(config)
    rows = filled(cache, 0, 37)
    cache.fork(0, 1)
    for seq, value in ((0, 900.0), (1, 700.0)):
        cache.reserve(seq, 1)
        write(cache, seq, 37, value)
        cache.commit(seq, [0])
    cache.check()
    assert read(cache, 0) == [*rows, 900.0] and read(cache, 1) == [*rows, 700.0]


@each_cache
@pytest.mark.parametrize("start", [0, 5, 16, 20, 32, 36])
def test_some_rows_of_a_text_are_read_alone(config, start):
    cache = new_cache(config)
    filled(cache, 0, 41)
    for stop in (start + 1, 41):
        for some, whole in zip(cache.read(0, 1, stop, start), cache.read(0, 1, stop), strict=True):
            assert torch.equal(some, whole[:, start:])


@each_cache
def test_a_text_may_be_as_long_as_the_cache_and_no_longer(config):
    cache = new_cache(config)
    filled(cache, 0, MAX_LEN)
    cache.check()
    filled(cache, 1, 45)
    for seq, n in ((0, 1), (1, MAX_LEN - 44), (1, MAX_LEN)):
        with pytest.raises(CapabilityError, match=f"asks for {n} more"):
            cache.reserve(seq, n)


def test_blocks_grow_twofold_by_whole_pages_up_to_the_longest_text():
    cache = CacheConfig().build(LAYERS, HEADS, WIDTH, torch.float32, "cpu", 40 * PAGE)
    filled(cache, 0, 1)
    sizes = [cache.memory(0).table.numel()]
    for _ in range(40 * PAGE - 1):
        cache.reserve(0, 1)
        write(cache, 0, cache.length(0), 1.0)
        cache.commit(0, [0])
        if cache.memory(0).table.numel() != sizes[-1]:
            sizes.append(cache.memory(0).table.numel())
    assert sizes == [8, 16, 32, 40]


@pytest.mark.parametrize("layout", ["static", "paged"])
def test_bytes_are_kept_where_they_are_asked_for_alone(layout):
    k, v = (
        torch.rand(2, 3, HEADS, WIDTH, generator=torch.Generator().manual_seed(1))
        * torch.tensor([1.0, 9.0])[:, None, None, None]
    )
    for dtype, near in (("auto", 0.0), ("int8", 0.5 / 127)):
        cache = CacheConfig(layout=layout, dtype=dtype).build(LAYERS, HEADS, WIDTH, torch.float32, "cpu", MAX_LEN)
        cache.add(0)
        cache.reserve(0, 3)
        cache.write(0, 0, 0, k, v)
        found, memory = cache.read(0, 0, 3), cache.memory(0)
        for given, kept, most in zip((k, v), found, (1, 9), strict=True):
            off = (given.transpose(0, 1) - kept).abs().max()
            assert off <= most * near and (off > 0) == (dtype == "int8")
        if dtype == "int8":  # each has its scales
            page = memory.table[0]
            assert (memory.value_scales[0, page] > 2 * memory.key_scales[0, page])[..., :3].all()
        else:
            assert memory.key_scales is None and memory.value_scales is None


def test_rows_that_fill_a_block_have_room_for_the_next_one():
    """A prompt's first chunk would else leave a block that the second one has to copy."""
    cache = StaticCache(1, 1, 32, torch.bfloat16, "cpu", 4096)
    cache.add(0)
    cache.reserve(0, 512)
    keys = cache.memory(0).keys
    cache.commit(0, range(512))
    cache.reserve(0, 512)
    assert cache.memory(0).keys is keys
