"""The folder of a draft that learns: whole versions, one current, nothing of another pair, no name of a tenant."""

import errno
import json
import shutil

import pytest

from outdraft import zoo
from outdraft.adapt.lock import one_at_a_time
from outdraft.adapt.options import AdaptOptions
from outdraft.adapt.room import SHARED, AdaptRoom, Pair
from outdraft.options.errors import CapabilityError, ConfigError

PAIR = Pair(target=zoo.path("target"), draft=zoo.path("eagle3"))


@pytest.fixture
def room(tmp_path):
    return AdaptRoom.open(tmp_path / "room", PAIR, {})


def write(text):
    return lambda place: (place / "config.json").write_text(text)


def test_a_version_is_whole_or_not_there(room):
    tenant = room.tenant(SHARED)
    assert tenant.version == 0 and tenant.draft is None

    def fails(place):
        (place / "config.json").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tenant.publish(fails)
    assert tenant.version == 0 and tenant.versions() == []
    assert [tenant.publish(write(one)) for one in "abcdef"] == [1, 2, 3, 4, 5, 6]
    assert (tenant.draft / "config.json").read_text() == "f" and tenant.versions() == [2, 3, 4, 5, 6], "old ones go"
    tenant.point(4)
    assert tenant.version == 4 and tenant.publish(write("g")) == 7, "no number is given twice"
    tenant.point(0)
    assert tenant.draft is None
    with pytest.raises(ConfigError, match="version 2 is not in"):
        tenant.point(2)


def test_a_number_is_not_given_again_after_its_version_went(room):
    tenant = room.tenant(SHARED)
    tenant.note("passed", version=tenant.publish(write("a")))
    shutil.rmtree(tenant.place(1))
    (tenant.path / "current").unlink()
    assert tenant.publish(write("b")) == 2


def test_another_pair_is_refused(room, tmp_path):
    AdaptRoom.open(room.path, PAIR, {"first": 7})
    assert AdaptRoom(room.path).said["options"] == {"first": 7}, "the latest engine's options count"
    with pytest.raises(ConfigError, match="belongs to another draft"):
        AdaptRoom.open(room.path, Pair(target=PAIR.target, draft=zoo.path("eagle")), {})
    with pytest.raises(ConfigError, match="belongs to another target"):
        AdaptRoom.open(room.path, Pair(target=zoo.path("draft"), draft=PAIR.draft), {})
    shutil.copytree(PAIR.draft, tmp_path / "draft")
    AdaptRoom.open(tmp_path / "other", Pair(target=PAIR.target, draft=tmp_path / "draft"), {}).require_unchanged()
    place = next((tmp_path / "draft").glob("*.safetensors"))
    place.write_bytes(place.read_bytes()[:-1] + b"x")
    with pytest.raises(ConfigError, match="belongs to another draft"):
        AdaptRoom(tmp_path / "other").require_unchanged()


def test_what_is_no_room_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="is no room of a draft that learns"):
        AdaptRoom(tmp_path)
    for wrong in ("[]", "{", json.dumps({"outdraft_adapt": 99}), json.dumps({"outdraft_adapt": 1})):
        (tmp_path / "room.json").write_text(wrong)
        with pytest.raises(ConfigError, match="is damaged or of another version"):
            AdaptRoom(tmp_path)


def test_folders_say_nothing_of_tenants(room, tmp_path):
    named = room.name_of("Acme Ltd")
    assert named == room.name_of("Acme Ltd") != room.name_of("Acme") and "cme" not in named
    assert room.name_of("") == room.name_of(None) == SHARED
    assert AdaptRoom.open(tmp_path / "second", PAIR, {}).name_of("Acme Ltd") != named, (
        "each room has a secret of its own"
    )
    assert (room.path / "secret").stat().st_mode & 0o077 == 0 and room.path.stat().st_mode & 0o077 == 0


def test_a_folder_with_other_things_in_it_is_no_room_and_is_never_deleted(tmp_path, room):
    (tmp_path / "work/thesis").mkdir(parents=True)
    with pytest.raises(ConfigError, match="a folder with other things in it"):
        AdaptRoom.open(tmp_path / "work", PAIR, {})
    (room.path / "thesis").mkdir()
    assert room.tenants() == []


def test_the_version_to_go_back_to_is_kept(room):
    tenant = room.tenant(SHARED)
    tenant.publish(write("good"))
    for _ in range(6):
        tenant.publish(write("bad"))
        tenant.point(1)
    tenant.publish(write("next"))
    tenant.point(1)
    assert (tenant.draft / "config.json").read_text() == "good"


def test_a_tenant_that_was_reset_is_another_one(room):
    tenant = room.tenant(SHARED)
    born = tenant.begin()
    assert tenant.begin() == born != ""
    tenant.reset()
    assert tenant.born == "" and tenant.begin() != born
    assert [one.name for one in room.path.iterdir() if one.name.startswith(".gone")] == []


def test_what_a_killed_learner_left_is_cleared_away(room):
    tenant = room.tenant(SHARED)
    (tenant.path / "versions/begun-99999").mkdir(parents=True)
    tenant.publish(write("a"))
    assert [one.name for one in (tenant.path / "versions").iterdir()] == ["000001"]


def test_a_version_that_is_half_deleted_is_none(room, monkeypatch):
    """As by a learner that was killed while it deleted an old one."""
    tenant = room.tenant(SHARED)
    for one in "abcde":
        tenant.publish(write(one))

    def killed(place, **_):
        next(iter(place.iterdir())).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("outdraft.adapt.room.shutil.rmtree", killed)
        tenant.publish(write("f"))
    assert tenant.version == 6 and tenant.versions() == [2, 3, 4, 5, 6]
    assert all((tenant.place(one) / "config.json").exists() for one in tenant.versions())
    assert tenant.publish(write("g")) == 7
    left = sorted(one.name for one in (tenant.path / "versions").iterdir())
    assert left == [f"{one:06d}" for one in (3, 4, 5, 6, 7)], "the rest of it is gone"


def test_the_ledger_leaves_out_what_was_cut_off(room):
    tenant = room.tenant("a" * 16)
    tenant.note("tried", number=1)
    with (tenant.path / "ledger.jsonl").open("a") as file:
        file.write('{"what": "pas')
    assert [one["what"] for one in tenant.ledger()] == ["tried"]
    tenant.note("tried", number=2)
    assert [one["number"] for one in tenant.ledger()] == [1, 2], "what comes next is a line of its own"
    assert room.tenants() == ["a" * 16]
    tenant.reset()
    assert room.tenants() == [] and tenant.ledger() == []


def test_one_learner_at_a_time(tmp_path):
    first = one_at_a_time(tmp_path / "lock", "taken")
    with first, pytest.raises(CapabilityError, match="taken"), one_at_a_time(tmp_path / "lock", "taken"):
        pass
    with one_at_a_time(tmp_path / "lock", "taken"):
        pass


def test_a_file_system_without_locks_keeps_no_learner_out(tmp_path, monkeypatch):
    def no_locks(file, how):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with one_at_a_time(tmp_path / "lock", "taken"):
        pass


def test_options_are_checked_before_anything_begins():
    for wrong in (
        {"learn": {"lr": 7}},
        {"learn": {"lrr": 0.1}},
        {"gate": {"alpha": 2.0}},
        {"days": 0.0},
        {"threads": 0},
    ):
        with pytest.raises(ConfigError):
            AdaptOptions(**wrong)
    assert (
        AdaptOptions(learn={"lr": 0.01}).learning.lr == 0.01 and AdaptOptions(gate={"margin": 0.2}).gating.margin == 0.2
    )
