"""`outdraft adapt status | freeze | reset | export | learn`: seen, held, undone, and one line for what is no room."""

import json
import shutil
from pathlib import Path

import pytest

from outdraft import zoo
from outdraft.adapt.lock import one_at_a_time
from outdraft.adapt.room import SHARED, AdaptRoom, Pair
from outdraft.adapt.spool import SpoolWriter
from outdraft.training import live_learner


@pytest.fixture
def room(tmp_path: Path) -> AdaptRoom:
    room = AdaptRoom.open(tmp_path / "room", Pair(target=zoo.path("target"), draft=zoo.path("eagle3")), {})
    for name in (SHARED, "a" * 16):
        tenant = room.tenant(name)
        spool = SpoolWriter(tenant.requests, num_kept=10, seconds=3600)
        spool.put({"prompt_token_ids": [1], "token_ids": [2, 3], "domain": "1"})
        spool.close()
        version = tenant.publish(lambda place: shutil.copytree(zoo.path("eagle3"), place, dirs_exist_ok=True) and None)
        tenant.note("passed", number=1, version=version, before=0, reason="passed after 14 held-out requests")
    return room


def test_status(outdraft, room: AdaptRoom):
    ran = outdraft("adapt", "status", room.path)
    assert ran.code == 0 and "shared: version 1 serves, 1 requests are kept" in ran.out
    assert "passed 1: passed after 14 held-out requests" in ran.out and "aaaa: version 1" in ran.out
    told = json.loads(outdraft("adapt", "status", room.path, "--json").out)
    assert told["tenants"][SHARED]["versions"] == [1] and not told["frozen"]
    (room.path / "observed.json").write_text('{"rounds": 3, "examined": {"blocks": []}}')
    told = json.loads(outdraft("adapt", "status", room.path, "--json").out)
    assert told["observed"] == {"rounds": 3}, "round by round it is the learner's to read"


def test_freeze_and_go_on(outdraft, room: AdaptRoom):
    assert outdraft("adapt", "freeze", room.path).code == 0 and room.is_frozen
    assert ", frozen" in outdraft("adapt", "status", room.path).out
    assert outdraft("adapt", "freeze", room.path, "--off").code == 0 and not room.is_frozen


def test_reset(outdraft, room: AdaptRoom):
    ran = outdraft("adapt", "reset", room.path, "--tenant", "b")
    assert ran.code == 2 and f"there are {'a' * 16}, shared" in ran.err
    assert outdraft("adapt", "reset", room.path, "--tenant", "a" * 16).code == 0 and room.tenants() == [SHARED]
    (room.path / "observed.json").write_text("{}")
    assert outdraft("adapt", "reset", room.path).code == 0 and room.tenants() == []
    assert not (room.path / "observed.json").exists() and room.tenant(SHARED).version == 0


def test_export(outdraft, room: AdaptRoom, tmp_path: Path):
    assert outdraft("adapt", "export", room.path).code == 2
    ran = outdraft("adapt", "export", room.path, "--out", tmp_path / "new")
    assert ran.code == 0 and "--head" in ran.out
    assert (tmp_path / "new/model.safetensors").is_file() and (tmp_path / "new/training.json").is_file()
    ran = outdraft("adapt", "export", room.path, "--out", tmp_path / "other", "--version", 7)
    assert ran.code == 2 and "version 7 is not in" in ran.err and "[0, 1]" in ran.err
    assert outdraft("adapt", "export", room.path, "--out", tmp_path / "first", "--version", 0).code == 0


def test_the_only_room_of_the_cache_need_not_be_named(outdraft, room: AdaptRoom, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("OUTDRAFT_CACHE", str(tmp_path / "cache"))
    ran = outdraft("adapt", "status")
    assert ran.code == 2 and "no draft learns yet" in ran.err
    shutil.copytree(room.path, tmp_path / "cache/adapt/one")
    assert outdraft("adapt", "status").code == 0
    shutil.copytree(room.path, tmp_path / "cache/adapt/two")
    ran = outdraft("adapt", "status")
    assert ran.code == 2 and "holds 2 rooms" in ran.err and "two" in ran.err


def test_what_is_no_room_and_a_second_learner_are_refused(outdraft, room: AdaptRoom, tmp_path: Path, monkeypatch):
    lowered = []  # this process is to stay as quick as it is
    monkeypatch.setattr(live_learner, "lower_priority", lambda **given: lowered.append(given))
    ran = outdraft("adapt", "status", tmp_path)
    assert ran.code == 2 and "is no room of a draft that learns" in ran.err
    with one_at_a_time(room.path / "learner.lock", "taken"):
        ran = outdraft("adapt", "learn", room.path)
    assert ran.code == 2 and "has a learner already" in ran.err
    assert lowered == [{"ends_with_parent": False}]


def test_info_shows_the_drafts_that_learn(outdraft, room: AdaptRoom, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("OUTDRAFT_CACHE", str(tmp_path / "cache"))
    assert "drafts that learn" not in json.loads(outdraft("info", "--json").out)
    seen = {"acceptance": [0.5, 0.25], "rounds": 90.0, "diagnosis": "Too few rounds to tell."}
    (room.path / "observed.json").write_text(json.dumps(seen))
    shutil.copytree(room.path, tmp_path / "cache/adapt/one")
    shutil.copytree(room.path, tmp_path / "cache/adapt/two")
    (tmp_path / "cache/adapt/two/room.json").write_text("{")
    told = json.loads(outdraft("info", "--json").out)["drafts that learn"]
    line = "zoo/eagle3, version 1, 2 requests kept; accepted by position 0.50 0.25; Too few rounds to tell."
    assert told["one"] == line and "is damaged" in told["two"]
    assert line in outdraft("info").out
