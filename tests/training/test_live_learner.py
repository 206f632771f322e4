"""The process that learns in a room: what it publishes, takes back, and remembers when it is killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from outdraft import zoo
from outdraft.adapt.gate import GateOptions
from outdraft.adapt.learning import Learning
from outdraft.adapt.room import SHARED, AdaptRoom, Pair
from outdraft.adapt.spool import SpoolWriter, read_spool
from outdraft.training import live_learner
from outdraft.training.candidates import Candidates
from outdraft.training.live import LiveDraft
from outdraft.training.live_learner import LiveLearner, request_of
from outdraft.training.served import ServedRequest
from tests.training.forms import filled_forms

PAIR = Pair(target=zoo.path("target"), draft=zoo.path("eagle3"))
LEARN = {"lr": 3e-3, "muon_lr": 5e-3, "step_tokens": 512, "held_out": 0.25, "depth": 3, "epochs": 1.0}
GATE = {"alpha": 0.5, "least": 2, "most": 60, "margin": 0.4}
OPTIONS = {"learn": LEARN, "gate": GATE, "first": 2048}


@pytest.fixture(scope="module")
def served():
    return [{"prompt_token_ids": one.prompt_token_ids, "token_ids": one.token_ids} for one in filled_forms()]


@pytest.fixture
def room(tmp_path, monkeypatch):
    monkeypatch.setattr(live_learner, "_REST", 0.0)
    return AdaptRoom.open(tmp_path / "room", PAIR, OPTIONS)


def write(room, several, times=1):
    room.tenant(SHARED).begin()
    spool = SpoolWriter(room.tenant(SHARED).requests, num_kept=2000, seconds=3600)
    for said in [*several] * times:
        spool.put(said)
    spool.close()


def learn(room, turns):
    """So many turns of a new process."""
    left = iter(range(turns))
    learner = LiveLearner(room)
    learner.run(lambda: next(left, None) is not None)
    return learner


def wreck(place):
    """A draft all of whose guesses are wrong."""
    shutil.copytree(PAIR.draft, place, dirs_exist_ok=True)
    file = place / "model.safetensors"
    save_file({name: -one if one.is_floating_point() else one for name, one in load_file(file).items()}, file)


def test_what_helps_is_published_and_counted(room, served):
    write(room, served, times=4)
    learner = learn(room, 30)
    tenant = room.tenant(SHARED)
    assert tenant.version == 1
    passed = next(one for one in tenant.ledger() if one["what"] == "passed")
    assert passed["version"] == 1 and passed["before"] == 0 and passed["tokens"] >= 2048
    pupil = learner._pupils[SHARED]
    published, known = pupil.live.read(tenant.draft), pupil.live.serving  # on disk in the target's number format
    assert all(torch.equal(one.bfloat16(), known[name].bfloat16()) for name, one in published.items())
    held = [request_of(one) for one in read_spool(tenant.requests)][:24]
    held = [one for one in held if one.number < LEARN["held_out"]]
    before, after = pupil.live.judge(held, (pupil.live.read(PAIR.draft), published))
    assert sum(after) > sum(before)
    assert json.loads((tenant.draft / "training.json").read_text())["promises"] == []


def test_a_process_that_was_killed_forgets_no_try_and_begins_where_it_decided(room, served):
    write(room, served, times=4)
    learner, tenant = LiveLearner(room), room.tenant(SHARED)
    while tenant.version == 0:
        assert learner._turn(SHARED)
    tries = sum(one["what"] == "tried" for one in tenant.ledger())
    again = LiveLearner(room)
    again._turn(SHARED)
    pupil = again._pupils[SHARED]
    assert pupil.candidates.tries >= tries >= 1 and pupil.version == tenant.version == 1
    assert pupil.candidates.held and all(one.number < LEARN["held_out"] for one in pupil.candidates.held)
    assert all(one.number >= LEARN["held_out"] for one in pupil.live._earlier)
    assert pupil.candidates._before is not None, "the version that passed is still watched"
    assert sum(pupil._seen.values()) < 96, "what was learned after the last decision is learned again"


def test_a_version_that_was_forced_through_is_taken_back(room, served):
    write(room, served)
    learner = LiveLearner(room)
    learner._turn(SHARED)
    tenant, turns = room.tenant(SHARED), 0
    assert tenant.publish(wreck) == 1
    while turns < 2 or (tenant.version and turns < 12):
        learner._turn(SHARED)
        turns += 1
    assert tenant.version == 0
    told = [one["what"] for one in tenant.ledger()]
    assert told == ["pointed", "watched", "rolled back"], "it says so once"


def test_a_reset_reaches_a_learner_that_did_not_see_it_happen(room, served):
    write(room, served)
    learner = LiveLearner(room)
    learner._turn(SHARED)
    first, tenant = learner._pupils[SHARED], room.tenant(SHARED)
    tenant.reset()
    tenant.begin()
    write(room, served[:3])
    learner._turn(SHARED)
    second = learner._pupils[SHARED]
    seen = len(second.live._earlier) + len(second.live._fresh) + len(second.candidates.held)
    assert second is not first and seen == 3
    with pytest.raises(live_learner.TenantGoneError):
        first._tell("passed", first.live.serving, 1, "")
    assert tenant.version == 0 and not tenant.ledger()


def test_a_turn_that_breaks_costs_other_tenants_nothing(room, served, monkeypatch):
    other = "b" * 16
    for name in (SHARED, other):
        room.tenant(name).begin()
        spool = SpoolWriter(room.tenant(name).requests, num_kept=100, seconds=3600)
        for said in served[:4]:
            spool.put(said)
    learner = LiveLearner(room)
    turn = live_learner.Pupil.turn

    def breaks(pupil):
        if pupil._tenant.path.name == other:
            pupil._seen["000001"] = 4
            raise RuntimeError("nan")
        return turn(pupil)

    monkeypatch.setattr(live_learner.Pupil, "turn", breaks)
    left = iter(range(3))
    learner.run(lambda: next(left, None) is not None)
    (told,) = room.tenant(other).ledger()
    assert told["what"] == "broke" and "nan" in told["reason"] and told["seen"] == {"000001": 4}
    assert other not in learner._pupils and SHARED in learner._pupils


def test_each_watch_is_another_test(room, served):
    write(room, served)
    tenant = room.tenant(SHARED)
    tenant.publish(lambda place: shutil.copytree(PAIR.draft, place, dirs_exist_ok=True))
    watches = []
    for _ in range(3):
        learner = LiveLearner(room)
        learner._turn(SHARED)
        watches.append(learner._pupils[SHARED].candidates._before[1].tries)
    assert watches == [1, 2, 3]
    assert [one["what"] for one in tenant.ledger()].count("pointed") == 1


def test_a_sound_version_that_is_pointed_to_by_hand_stays(room, served):
    write(room, served, times=2)
    learner = LiveLearner(room)
    learner._turn(SHARED)
    tenant = room.tenant(SHARED)
    tenant.publish(lambda place: shutil.copytree(PAIR.draft, place, dirs_exist_ok=True))
    for _ in range(13):
        learner._turn(SHARED)
    assert "rolled back" not in [one["what"] for one in tenant.ledger()]


def test_nothing_is_learned_in_a_frozen_room_or_beyond_the_hour(room, served, monkeypatch):
    write(room, served, times=4)
    (room.path / "frozen").touch()
    learn(room, 5)
    assert not room.tenant(SHARED).ledger()
    (room.path / "frozen").unlink()
    poor = AdaptRoom.open(room.path, PAIR, {**OPTIONS, "seconds_an_hour": 0.0})
    learn(poor, 5)
    assert not room.tenant(SHARED).ledger()


def test_tenants_are_learned_apart_and_a_reset_one_is_gone(room, served):
    for name in (SHARED, "a" * 16):
        room.tenant(name).begin()
        spool = SpoolWriter(room.tenant(name).requests, num_kept=100, seconds=3600)
        for said in served[: 12 if name == SHARED else 6]:
            spool.put(said)
    learner = learn(room, 6)
    pupils = learner._pupils
    assert pupils[SHARED].live is not pupils["a" * 16].live
    assert pupils[SHARED].live._decoder is pupils["a" * 16].live._decoder, "one target for all"
    seen = [len(one.live._earlier) + len(one.live._fresh) + len(one.candidates.held) for one in pupils.values()]
    assert sorted(seen) == [6, 12]
    room.tenant("a" * 16).reset()
    learner._turn("a" * 16)
    assert "a" * 16 not in learner._pupils


def test_lines_that_are_no_requests_are_passed_over(room, served):
    write(
        room, [{}, {"prompt_token_ids": "x", "token_ids": [1]}, [1], {"prompt_token_ids": [1.5], "token_ids": [1, 2]}]
    )
    write(room, served[:4])
    learner = learn(room, 3)
    pupil = learner._pupils[SHARED]
    assert len(pupil.live._earlier) + len(pupil.live._fresh) + len(pupil.candidates.held) == 4


class Hears:
    def __init__(self):
        self.turns = []

    def __call__(self, turn, weights, number, reason):
        self.turns.append((turn, number))


def test_a_try_is_counted_before_it_is_judged(served, monkeypatch):
    """So a process that is killed in between has counted it."""
    target = live_learner.open_target(PAIR.target, "auto", "cpu")
    live, hears = LiveDraft(target, PAIR.draft, Learning(**LEARN)), Hears()
    candidates = Candidates(live=live, gate=GateOptions(**GATE), tell=hears, first=512, tries=3)
    judged = []
    judge = live.judge
    monkeypatch.setattr(live, "judge", lambda *all: (judged.append(len(hears.turns)), judge(*all))[1])
    for one in served:
        candidates.take([ServedRequest(prompt=tuple(one["prompt_token_ids"]), answer=tuple(one["token_ids"]))])
    assert hears.turns[0] == ("tried", 4) and judged[0] >= 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it ends with its parent by Linux's own means")
def test_the_process_pauses_goes_on_and_ends_with_its_engine(room, tmp_path):
    """An engine that is killed leaves no learner behind, not even a paused one."""
    code = (
        "import sys, time; from pathlib import Path\n"
        "from outdraft.engine.adapting.learner_process import LearnerProcess\n"
        f"learner = LearnerProcess(Path({str(room.path)!r}), 1)\n"
        "learner.keep_alive(); print(learner.pid, flush=True)\n"
        "sys.stdin.readline(); learner.pause(); print('paused', flush=True); time.sleep(600)\n"
    )
    engine = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        pid = int(engine.stdout.readline())
        wait_for(lambda: (room.path / "learner.lock").exists())
        assert b"LRU_CACHE_CAPACITY=16\0" in Path(f"/proc/{pid}/environ").read_bytes()  # else it takes a gigabyte
        engine.stdin.write("\n")
        engine.stdin.flush()
        assert engine.stdout.readline() == "paused\n"
        wait_for(lambda: state(pid) == "T")
    finally:
        engine.kill()
        engine.wait()
    try:
        wait_for(lambda: state(pid) in ("", "Z"))
    finally:
        if state(pid) not in ("", "Z"):
            os.kill(pid, signal.SIGKILL)


def state(pid):
    """As /proc says it: T is stopped, Z has ended; "" is gone."""
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def wait_for(holds):
    for _ in range(1200):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come")


def test_tenants_take_turns_even_where_each_has_work_for_ever(room, served, monkeypatch):
    names = [SHARED, "a" * 16, "b" * 16]
    for name in names:
        room.tenant(name).begin()
        SpoolWriter(room.tenant(name).requests, num_kept=100, seconds=3600).put(served[0])
    worked = []
    monkeypatch.setattr(live_learner.Pupil, "turn", lambda pupil: worked.append(pupil._tenant.path.name) or True)
    learn(room, 6)
    assert worked == sorted(names) * 2
