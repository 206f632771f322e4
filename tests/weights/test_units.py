"""Units of weights under a budget: what stays, what is read when, and what happens to a damaged file."""

import ctypes
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft.kernels.checksum import checksum
from outdraft.kernels.library import library
from outdraft.options.errors import ConfigError, ModelLoadError
from outdraft.weights.direct import ALIGN, TICK, DirectFile, align, settled_stamp
from outdraft.weights.units import Unit, UnitReader, choose_resident, held_bytes

pytestmark = pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)")
SIZES = (5000, 9000, 3000, 9000, 4096)


def sum_of(content: bytes) -> int:
    held = ctypes.create_string_buffer(content, len(content))
    return checksum(ctypes.addressof(held), len(content))


@pytest.fixture
def stored(tmp_path):
    """A file of units, each full of its own number."""
    path, units, data = tmp_path / "units", [], b""
    for number, size in enumerate(SIZES, start=1):
        content = bytes([number]) * size
        units.append(Unit(offset=len(data), size=size, checksum=sum_of(content)))
        data += content.ljust(align(size), b"\0")
    path.write_bytes(data)
    return path, units


def first_byte(reader: UnitReader, index: int) -> int:
    address = reader.bring(index)
    size = reader.units[index].size
    found = set(ctypes.string_at(address, size))
    assert len(found) == 1, f"unit {index} is a mixture"
    return found.pop()


@given(st.lists(st.integers(1, 50), min_size=2, max_size=12), st.integers(1, 400))
def test_a_budget_is_kept_and_used(pages, budget):
    sizes, budget = [ALIGN * n for n in pages], ALIGN * budget
    try:
        resident = choose_resident(sizes, budget)
    except ConfigError as error:
        assert held_bytes(sizes, frozenset()) > budget and held_bytes(sizes, frozenset({len(sizes) - 1})) > budget
        assert "give at least" in str(error)
        return
    assert held_bytes(sizes, resident) <= budget
    if sum(sizes) <= budget:
        assert len(resident) == len(sizes)


def test_equal_layers_fill_the_budget_and_stand_apart():
    sizes = [ALIGN * 10] * 8 + [ALIGN * 5]
    resident = choose_resident(sizes, ALIGN * 65)
    assert held_bytes(sizes, resident) == ALIGN * 65  # two buffers, four layers and the head
    assert resident == {1, 3, 5, 7, 8}


def test_rounds_read_each_streamed_unit_once(stored):
    path, units = stored
    reader = UnitReader(DirectFile(path), units, budget=2 * align(9000) + align(4096))
    assert reader.resident == {4} and reader.held_bytes == 2 * align(9000) + align(4096)
    at_start = reader.file.num_read
    for _ in range(3):
        assert [first_byte(reader, index) for index in range(5)] == [1, 2, 3, 4, 5]
    reader._forget_ahead()  # waits for what is under way
    per_round = sum(align(SIZES[i]) for i in reader.streamed)
    assert reader.round_bytes == per_round
    assert reader.file.num_read - at_start == 3 * per_round + align(SIZES[0])  # the next round's first is there already


def test_any_order_works(stored):
    path, units = stored
    reader = UnitReader(DirectFile(path), units, budget=2 * align(9000))
    for index in (3, 0, 0, 2, 4, 1, 1, 3, 2):
        assert first_byte(reader, index) == index + 1


def test_damage_is_found_in_the_reading_thread_and_named(stored):
    path, units = stored
    data = bytearray(path.read_bytes())
    data[units[2].offset + 17] ^= 1
    path.write_bytes(data)
    reader = UnitReader(DirectFile(path), units, budget=2 * align(9000))
    assert first_byte(reader, 1) == 2
    with pytest.raises(ModelLoadError, match="damaged"):
        reader.bring(2)
    assert first_byte(reader, 3) == 4  # both buffers are still there
    assert first_byte(reader, 0) == 1


def test_a_file_cut_short_is_named(stored):
    path, units = stored
    path.write_bytes(path.read_bytes()[: units[3].offset])
    reader = UnitReader(DirectFile(path), units, budget=2 * align(9000))
    with pytest.raises(ModelLoadError, match="ends at byte"):
        reader.bring(3)


def test_a_slow_disk_takes_its_time(stored, monkeypatch):
    path, units = stored
    slept = []
    monkeypatch.setattr("outdraft.weights.direct.sleep", slept.append)
    reader = UnitReader(DirectFile(path, gbps=1e-6), units, budget=2 * align(9000))  # a kilobyte a second
    reader.bring(0)
    reader._forget_ahead()
    assert slept and slept[0] > 7  # 8192 bytes


def test_a_write_in_the_tick_of_another_is_seen(stored, monkeypatch):
    path, units = stored
    monkeypatch.setattr("outdraft.weights.direct.TICK", 60)  # so that this test lies within one
    reader = UnitReader(DirectFile(path), units, budget=2 * align(9000))
    reader.bring(0)  # and unit 1 is read ahead
    reader._forget_ahead()
    written = path.stat()
    data = bytearray(path.read_bytes())
    data[units[1].offset] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(written.st_atime_ns, written.st_mtime_ns))  # as a clock that has not ticked since
    monkeypatch.setattr("outdraft.weights.direct.TICK", 0)
    with pytest.raises(ModelLoadError, match="damaged"):
        reader.bring(1)


def test_a_unit_of_a_settled_file_is_checked_once(stored, monkeypatch):
    path, units = stored
    os.utime(path, (1, 1))
    reader, checked = UnitReader(DirectFile(path), units, budget=2 * align(9000)), []
    monkeypatch.setattr(
        "outdraft.weights.units.checksum", lambda address, size: checked.append(size) or checksum(address, size)
    )
    for index in (0, 1, 2, 3, 0, 1, 2, 3):
        reader.bring(index)
    reader._forget_ahead()
    assert len(checked) == len(SIZES)


def test_a_fresh_stamp_is_taken_after_a_tick(stored, monkeypatch):
    path, slept = stored[0], []
    monkeypatch.setattr("outdraft.weights.direct.sleep", slept.append)
    with path.open("rb") as file:
        settled_stamp(file.fileno())
        os.utime(path, (1, 1))
        assert settled_stamp(file.fileno()) == (path.stat().st_size, 10**9)
    assert slept == [TICK]
