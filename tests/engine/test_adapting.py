"""An engine whose draft learns: what leaves it, what comes back into it, and that no text changes."""

import json
import shutil
import threading

import pytest
from safetensors.torch import load_file, save_file

from outdraft import LLM, SamplingParams, zoo
from outdraft.adapt.observe import Observed
from outdraft.adapt.room import SHARED, AdaptRoom
from outdraft.adapt.spool import read_spool
from outdraft.options.errors import CapabilityError, ConfigError, RequestError

HEAD = {"drafter": {"name": "eagle3", "model": "zoo:eagle3"}, "num_speculative_tokens": 3}
GREEDY = SamplingParams(max_tokens=24, ignore_eos=True)
SEEDED = SamplingParams(max_tokens=24, ignore_eos=True, temperature=1.0, seed=5)
PROMPTS = ["The sea was", "It was late", "My brother", "A letter came"]


@pytest.fixture(scope="module")
def plain():
    with LLM("zoo:target", drafter="none") as llm:
        yield llm


def learning(room, **options):
    return LLM("zoo:target", **HEAD, adapt={"room": str(room), "learner": False, **options})


@pytest.fixture
def worse(tmp_path):
    """A version whose guesses are all wrong."""

    def write(place):
        shutil.copytree(zoo.path("eagle3"), place, dirs_exist_ok=True)
        weights = load_file(place / "model.safetensors")
        save_file(
            {name: -one if one.is_floating_point() else one for name, one in weights.items()},
            place / "model.safetensors",
        )

    return write


def kept(room, folder=SHARED):
    return [one.said for one in read_spool(AdaptRoom(room).tenant(folder).requests)]


def test_requests_leave_as_ids_and_nothing_else(tmp_path):
    room = tmp_path / "room"
    with learning(room, learn={"window": 1}) as llm:  # and twice that for a cure
        results = [llm.generate(one, GREEDY) for one in PROMPTS]
        ids = [llm.encode(one) for one in PROMPTS]
    assert [one["token_ids"] for one in kept(room)] == [list(one.token_ids) for one in results]
    assert [one["prompt_token_ids"] for one in kept(room)] == [list(one[-2:]) for one in ids]
    assert all(set(one) == {"prompt_token_ids", "token_ids"} for one in kept(room))
    written = b"".join(path.read_bytes() for path in room.rglob("*") if path.is_file())
    assert b"brother" not in written


@pytest.mark.parametrize("opt_in", [False, True])
def test_requests_that_opted_out_leave_no_trace(tmp_path, opt_in):
    room = tmp_path / "room"
    with learning(room, opt_in=opt_in) as llm:
        for one in PROMPTS:
            llm.generate(one, GREEDY, adapt=None if opt_in else False)
        status = llm.adapting.status()
        assert not llm.adapting.watch.observed and not llm.adapting.watch.domains
        with pytest.raises(RequestError, match="adapt"):
            llm.generate("x", GREEDY, adapt="no")
    assert status["rounds"] == status["requests_kept"] == 0 and not AdaptRoom(room).tenants()
    with learning(room, opt_in=opt_in) as llm:
        llm.generate(PROMPTS[0], GREEDY, adapt=True)
        assert llm.adapting.status()["rounds"] > 0
    assert len(kept(room)) == 1


def test_what_is_not_the_models_own_answer_is_left_out(tmp_path):
    with learning(tmp_path / "room") as llm:
        llm.generate("Yes or no", SamplingParams(max_tokens=24), adapt=True, timeout=1e-9)
        llm.generate("Say", SamplingParams(max_tokens=1))
        llm.generate("Say it", SamplingParams(max_tokens=8, guidance_scale=1.5, ignore_eos=True))
    assert not AdaptRoom(tmp_path / "room").tenants()


def test_tenants_share_nothing(tmp_path, worse):
    room = tmp_path / "room"
    with learning(room) as llm:
        llm.generate(PROMPTS[0], GREEDY)
        for salt in ("a", "b"):
            llm.generate(PROMPTS[1], GREEDY, cache_salt=salt)
        a, b = (AdaptRoom(room).name_of(salt) for salt in ("a", "b"))
        wait_until(lambda: [len(kept(room, one)) for one in (SHARED, a, b)] == [1, 1, 1])
        assert {SHARED, a, b} == set(AdaptRoom(room).tenants())
        AdaptRoom(room).tenant(a).publish(worse)
        AdaptRoom(room).tenant(SHARED).publish(worse)
        wait_until(lambda: [llm.adapting.serving.get(one, ("", 0))[1] for one in (a, SHARED)] == [1, 1])
        rounds = {}
        for salt in ("a", "b", None):
            rounds[salt] = llm.generate(PROMPTS[2], GREEDY, cache_salt=salt).stats
        assert set(rounds["b"].rounds_by_version) == {0}, "neither another tenant's draft nor that of all others"
        assert set(rounds["a"].rounds_by_version) | set(rounds[None].rounds_by_version) == {1, 2}
        assert rounds["a"].num_accepted_tokens == rounds[None].num_accepted_tokens < rounds["b"].num_accepted_tokens
        status = llm.adapting.status()
        assert status["version"] == 1 and status["tenants"] == 3
        shared = sum(one["rounds"] for one in status["domains"].values())
        assert shared == status["rounds"] < sum(one.whole.rounds for one in llm.adapting.watch.observed.values())


def test_tenants_beyond_the_most_leave_nothing(tmp_path):
    with learning(tmp_path / "room", max_tenants=1) as llm:
        for salt in ("a", "b", "c", None):
            llm.generate(PROMPTS[0], GREEDY, cache_salt=salt)
        assert llm.adapting.watch.num_left_out == 2
    assert len(AdaptRoom(tmp_path / "room").tenants()) == 2


def test_one_key_opens_so_many_tenants_and_no_more(tmp_path):
    with learning(tmp_path / "room", max_tenants=6, tenants_a_key=2) as llm:
        for salt in ("key/", "key/a", "key/b", "key/a", "other/", "/a", "/b", "/c", "/d", None):
            llm.generate(PROMPTS[0], GREEDY, cache_salt=salt)
        assert list(llm.adapting.watch.domains) == ["key/", "key/a", "other/", "/a", "/b", "/c", ""]
        assert llm.adapting.watch.num_left_out == 2


def test_texts_are_the_same_through_many_swaps(tmp_path, plain, worse):
    """Greedy and seeded, in batches, forwards and back to the draft of the beginning."""
    expected = [(settings, plain.generate(PROMPTS, settings)) for settings in (GREEDY, SEEDED)]
    room = tmp_path / "room"
    with learning(room) as llm:
        tenant, over = AdaptRoom(room).tenant(SHARED), threading.Event()
        tenant.publish(worse)

        def swap():
            version = 0
            while not over.is_set():
                version = 1 - version
                tenant.point(version)
                llm.adapting._follow()

        swapping = threading.Thread(target=swap)
        swapping.start()
        versions = set()
        try:
            while len(versions) < 20:
                for settings, wanted in expected:
                    found = llm.generate(PROMPTS, settings)
                    assert [one.token_ids for one in found] == [one.token_ids for one in wanted]
                    versions |= {version for one in found for version in one.stats.rounds_by_version}
        finally:
            over.set()
            swapping.join()


def test_a_version_that_cannot_be_read_changes_nothing(tmp_path, plain, caplog):
    room = tmp_path / "room"
    with learning(room) as llm:
        AdaptRoom(room).tenant(SHARED).publish(lambda place: (place / "config.json").write_text("{"))
        wait_until(lambda: "adaptation:" in caplog.text)
        found = llm.generate(PROMPTS[0], GREEDY)
        assert found.token_ids == plain.generate(PROMPTS[0], GREEDY).token_ids
        assert set(found.stats.rounds_by_version) == {0}


def test_the_version_of_the_room_serves_from_the_first_request_on(tmp_path, worse):
    room = tmp_path / "room"
    with learning(room) as llm:
        sound = llm.generate(PROMPTS[0], GREEDY).stats.num_accepted_tokens
    AdaptRoom(room).tenant(SHARED).publish(worse)
    with learning(room) as llm:
        assert llm.generate(PROMPTS[0], GREEDY).stats.num_accepted_tokens < sound
        assert llm.adapting.status()["version"] == 1


def test_a_tenants_version_serves_after_a_restart_while_all_is_frozen(tmp_path, worse):
    room = tmp_path / "room"
    with learning(room) as llm:
        sound = llm.generate(PROMPTS[0], GREEDY, cache_salt="a").stats.num_accepted_tokens
    folder = AdaptRoom(room).name_of("a")
    AdaptRoom(room).tenant(folder).publish(worse)
    (room / "frozen").touch()
    with learning(room) as llm:
        llm.generate(PROMPTS[0], GREEDY, cache_salt="a", adapt=False)
        wait_until(lambda: folder in llm.adapting.serving)
        assert llm.generate(PROMPTS[0], GREEDY, cache_salt="a").stats.num_accepted_tokens < sound


def test_a_reset_reaches_an_engine_that_runs(tmp_path, worse):
    """Also where a version of the same number comes again."""
    room = tmp_path / "room"
    with learning(room) as llm:
        sound = llm.generate(PROMPTS[0], GREEDY).stats.num_accepted_tokens
        tenant = AdaptRoom(room).tenant(SHARED)
        tenant.publish(lambda place: shutil.copytree(zoo.path("eagle3"), place, dirs_exist_ok=True))
        wait_until(lambda: llm.adapting.serving.get(SHARED, ("", 0))[1] == 1)
        born = llm.adapting.serving[SHARED][0]
        tenant.reset()
        assert tenant.publish(worse) == 1
        wait_until(lambda: llm.adapting.serving.get(SHARED, ("", 0))[0] not in ("", born))
        assert llm.generate(PROMPTS[1], GREEDY).stats.num_accepted_tokens < sound
        wait_until(lambda: len(kept(room)) == 1)  # the file that was deleted is not written on


def test_a_busy_engine_follows_and_closes(tmp_path, worse):
    """Requests that end without a pause keep the other thread from nothing."""
    room = tmp_path / "room"
    with learning(room) as llm:
        over = threading.Event()

        def ask():
            while not over.is_set():
                llm.generate("x", SamplingParams(max_tokens=2, ignore_eos=True))

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            wait_until(lambda: AdaptRoom(room).tenant(SHARED).born)
            AdaptRoom(room).tenant(SHARED).publish(worse)
            wait_until(lambda: llm.adapting.serving.get(SHARED, ("", 0))[1] == 1)
        finally:
            over.set()
            asking.join()


def test_a_room_that_vanishes_stops_no_request(tmp_path, plain, caplog):
    room = tmp_path / "room"
    with learning(room) as llm:
        shutil.rmtree(room)
        found = llm.generate(PROMPTS[0], GREEDY)
        wait_until(lambda: "adaptation:" in caplog.text)
        assert found.token_ids == plain.generate(PROMPTS[0], GREEDY).token_ids
        assert llm.adapting._thread.is_alive()


def test_a_frozen_room_takes_no_request(tmp_path):
    room = tmp_path / "room"
    with learning(room) as llm:
        (room / "frozen").touch()
        wait_until(lambda: llm.adapting.watch.is_frozen)
        llm.generate(PROMPTS[0], GREEDY)
    assert not AdaptRoom(room).tenants()


def test_what_was_observed_is_left_for_others_to_read(tmp_path):
    room = tmp_path / "room"
    with learning(room) as llm:
        AdaptRoom(room).tenant(SHARED).note("diagnosed", reason="taps are off")
        llm.generate(PROMPTS, GREEDY)
    told = json.loads((room / "observed.json").read_text())
    assert told["rounds"] > 0 and len(told["acceptance"]) == len(told["marginal_acceptance"]) == 3
    assert all(a <= m + 0.3 for a, m in zip(told["acceptance"], told["marginal_acceptance"], strict=True))
    assert told["diagnosis"] and told["treatment"] == "taps are off"
    assert Observed.of(told["examined"]).whole.rounds == told["rounds"]


def test_the_status_has_hazards_calibration_and_the_last_verdict(tmp_path):
    drafter = {"name": "eagle3", "model": "zoo:eagle3", "width": 1, "confidence_threshold": 0.3}
    adapt = {"room": str(tmp_path / "room"), "learner": False}
    with LLM("zoo:target", drafter=drafter, num_speculative_tokens=3, adapt=adapt) as llm:
        stats = [one.stats for one in llm.generate(PROMPTS, GREEDY)]
        tenant = AdaptRoom(tmp_path / "room").tenant(SHARED)
        tenant.note("failed", number=2, version=0, before=0, tokens=9, reason="failed after 9 held-out requests")
        tenant.note("tried", number=3, version=0, before=0, tokens=9)
        told = llm.adapting.status()
    verdict = {"what": "failed", "number": 2, "version": 0, "reason": "failed after 9 held-out requests"}
    assert told["verdict"] == verdict
    rejected, reached = (
        [sum(getattr(one, name)[i] for one in stats) for i in (1, 2, 3)] for name in ("first_rejection", "reached")
    )
    assert told["first_rejection"] == rejected
    assert told["hazards"] == pytest.approx([a / b for a, b in zip(rejected, reached, strict=True)], abs=1e-4)
    assert stats[0].hazards == pytest.approx([1 - one for one in stats[0].acceptance_by_position])
    right = sum(one["accepted"] * one["of"] for one in told["calibration"])
    assert right == pytest.approx(sum(one.num_accepted_tokens for one in stats), abs=0.1)
    assert all(0 <= one["confidence"] <= 1 for one in told["calibration"])


def test_what_cannot_learn_is_refused(tmp_path):
    with pytest.raises(CapabilityError, match="here are 0"):
        LLM("zoo:target", drafter="ngram", adapt={"room": str(tmp_path / "a"), "learner": False})
    with pytest.raises(ConfigError, match="unknown option 'rom' of adapt"):
        LLM("zoo:target", **HEAD, adapt={"rom": "x"})
    with pytest.raises(ConfigError, match="both change weights"):
        LLM("zoo:target", **HEAD, adapt=True, precision="elastic")
    with learning(tmp_path / "b"), pytest.raises(ConfigError, match="belongs to another draft"):
        LLM(
            "zoo:target",
            drafter={"name": "draft_model", "model": "zoo:draft"},
            adapt={"room": str(tmp_path / "b"), "learner": False},
        )


def test_no_home_and_no_room(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTDRAFT_CACHE", "off")
    with pytest.raises(ConfigError, match="OUTDRAFT_CACHE=off keeps nothing"):
        LLM("zoo:target", **HEAD, adapt={"learner": False})
    monkeypatch.setenv("OUTDRAFT_CACHE", str(tmp_path))
    with LLM("zoo:target", **HEAD, adapt={"learner": False}) as llm:
        assert llm.adapting.room.path.parent == tmp_path / "adapt"


def wait_until(holds):
    """The other thread looks once a second."""
    pause = threading.Event()
    for _ in range(600):
        if holds():
            return
        pause.wait(0.05)
    raise AssertionError("it did not come")
