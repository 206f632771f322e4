"""Requests on disk: bounded, numbered once, and read on from where a process was killed."""

import os

from outdraft.adapt.spool import SpoolWriter, read_spool, spool_files


def writer(folder, **other):
    return SpoolWriter(folder, **{"num_kept": 100, "seconds": 3600.0, **other})


def test_what_is_written_is_read_in_order_and_once(tmp_path):
    spool = writer(tmp_path / "requests")
    for i in range(150):
        spool.put({"i": i})
    found = list(read_spool(tmp_path / "requests"))
    assert [one.said["i"] for one in found] == list(range(150))
    seen = {one.file: one.line for one in found[:100]}
    later = list(read_spool(tmp_path / "requests", seen))
    assert [one.said["i"] for one in later] == list(range(100, 150))
    assert len({(one.file, one.line) for one in found}) == 150


def test_engines_that_share_a_room_write_beside_each_other(tmp_path):
    ours, theirs, seen = writer(tmp_path), writer(tmp_path), {}
    found = []
    for i in range(100):
        (ours if i % 3 else theirs).put({"i": i})
        for one in read_spool(tmp_path, seen):
            seen[one.file] = one.line
            found.append(one.said["i"])
    assert found == list(range(100))


def test_no_more_is_kept_than_was_said(tmp_path):
    spool = writer(tmp_path, num_kept=100)
    for i in range(1000):
        spool.put({"i": i})
    kept = [one.said["i"] for one in read_spool(tmp_path)]
    assert 100 <= len(kept) <= 100 + 3 * 64 and kept == list(range(1000 - len(kept), 1000))


def test_what_is_old_is_deleted(tmp_path):
    spool = writer(tmp_path, seconds=100.0)
    for i in range(130):
        spool.put({"i": i})
    first = spool_files(tmp_path)[0]
    os.utime(first, (1, 1))
    spool.clean()
    assert not first.exists() and next(iter(read_spool(tmp_path))).said["i"] == 64


def test_so_many_are_kept_also_after_many_restarts(tmp_path):
    for i in range(60):
        spool = writer(tmp_path, num_kept=100)
        spool.put({"i": i})
        spool.close()
    assert [one.said["i"] for one in read_spool(tmp_path)] == list(range(60))


def test_a_file_that_was_deleted_is_not_written_on(tmp_path):
    spool = writer(tmp_path)
    spool.put({"i": 0})
    spool_files(tmp_path)[0].unlink()
    spool.put({"i": 1})
    assert [one.said["i"] for one in read_spool(tmp_path)] == [1]


def test_a_line_that_was_cut_off_is_not_read_and_not_written_on(tmp_path):
    spool = writer(tmp_path)
    spool.put({"i": 0})
    spool.close()
    with spool_files(tmp_path)[0].open("a") as file:
        file.write('{"i": ')
    again = writer(tmp_path)
    again.put({"i": 1})
    found = list(read_spool(tmp_path))
    assert [(one.file, one.line, one.said["i"]) for one in found] == [("000001", 1, 0), ("000002", 1, 1)]


def test_a_line_that_is_being_written_is_read_when_it_is_whole(tmp_path):
    spool = writer(tmp_path)
    spool.put({"i": 0})
    (place,) = spool_files(tmp_path)
    with place.open("a") as file:
        file.write('{"i": 1}')
    assert [one.said["i"] for one in read_spool(tmp_path)] == [0]
    with place.open("a") as file:
        file.write("\n")
    assert [one.said["i"] for one in read_spool(tmp_path)] == [0, 1]


def test_a_number_is_not_given_again_after_its_file_went(tmp_path):
    spool = writer(tmp_path)
    spool.put({"i": 0})
    (before,) = read_spool(tmp_path)
    spool.close()
    spool_files(tmp_path)[0].unlink()
    again = writer(tmp_path)
    again.put({"i": 1})
    (after,) = read_spool(tmp_path)
    assert after.file > before.file


def test_only_this_user_may_read_it(tmp_path):
    writer(tmp_path / "requests").put({"i": 0})
    assert (tmp_path / "requests").stat().st_mode & 0o077 == 0
    assert spool_files(tmp_path / "requests")[0].stat().st_mode & 0o077 == 0
