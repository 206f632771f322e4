"""Cached states: the same bits with them, without them and with half of them; nothing strange or damaged is obeyed."""

import json
import resource
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from outdraft.learn.save import Progress, State, load_state, save_state
from outdraft.models.files.load import save_model
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import tiny_model
from outdraft.training.course import prepare
from outdraft.training.plan import make_plan
from outdraft.training.states import PassCache, PassStates
from tests.training.toys import lesson_rows, rows


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    place = tmp_path_factory.mktemp("states")
    for seed in (1, 2):
        save_model(tiny_model(vocab=61, layers=3, seed=seed, dtype=torch.float32), place / f"target{seed}")
    for seed in (0, 1):
        ids = np.random.default_rng(seed).integers(61, size=(30, 20)).tolist()
        (place / f"{seed}.jsonl").write_text("".join(json.dumps({"token_ids": one}) + "\n" for one in ids))
    return place


def course(scene, out, kind="eagle", target=1, data=0, **more):
    given = {
        "kind": kind,
        "target": str(scene / f"target{target}"),
        "data": (str(scene / f"{data}.jsonl"),),
        "out": str(out),
        "loop": {"seq_len": 16, "batch_tokens": 64, "micro_tokens": 32, "steps": 12, "eval_every": 6},
        "same_order": True,
        **more,
    }
    return prepare(make_plan(given), lambda line: None)


def weights(one):
    one.loop.run()
    return [parameter.detach().clone() for parameter in one.learner.module.parameters()]


def counted(one):
    """How often the target is asked."""
    asked, run = [], one.teacher.target.run

    def told(*args, **more):
        asked.append(1)
        return run(*args, **more)

    one.teacher.target.run = told
    return asked


def same(ours, theirs):
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("kind", ["eagle", "medusa", "draft_model"])
def test_the_bits_are_the_same_with_without_and_with_half_of_it(scene, tmp_path, kind):
    plain = weights(course(scene, tmp_path / "off", kind))
    full = course(scene, tmp_path / "on", kind, cache_bytes=1 << 24, cache_dir=str(tmp_path / "states"))
    asked = counted(full)
    assert same(weights(full), plain)
    files = sorted((tmp_path / "states").glob("*.safetensors"))
    num_made = len(asked)
    assert num_made == len(files) < 24 + 4, "the second epoch and the second exam are read from the cache"
    again = course(scene, tmp_path / "again", kind, cache_bytes=1 << 24, cache_dir=str(tmp_path / "states"))
    asked = counted(again)
    assert same(weights(again), plain) and not asked, "a second run asks the target for nothing"
    size = files[0].stat().st_size
    half = course(scene, tmp_path / "half", kind, cache_bytes=size * len(files) // 2)
    assert same(weights(half), plain)
    kept = list((tmp_path / "half/run/states").glob("*.safetensors"))
    assert 0 < len(kept) < len(files) and sum(file.stat().st_size for file in kept) <= size * len(files) // 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"target": 2}, "target is"),
        ({"options": {"taps": (0, 1)}}, r"taps is \[0, 2\] there and \[0, 1\] here"),
        ({"data": 1}, "texts is"),
        ({"dtype": "bfloat16"}, "target is|dtype is"),
    ],
)
def test_a_cache_of_something_else_is_refused(scene, tmp_path, change, says):
    own = {"cache_bytes": 1 << 24, "cache_dir": str(tmp_path / "states"), "options": {"taps": (0, 2)}}
    course(scene, tmp_path / "one", **own).loop.run(until=1)
    before = {path: path.read_bytes() for path in (tmp_path / "states").iterdir()}
    with pytest.raises(ConfigError, match=f"caches the states of another run: ({says})"):
        course(scene, tmp_path / "two", **(own | change))
    assert before == {path: path.read_bytes() for path in (tmp_path / "states").iterdir()}, "nothing is lost"


def test_a_cache_of_more_taps_serves_a_kind_of_fewer(scene, tmp_path):
    """And what the second kind adds to it lacks some: the first makes that again."""
    shared = {"cache_bytes": 1 << 24, "cache_dir": str(tmp_path / "states")}
    plain = weights(course(scene, tmp_path / "off"))
    course(scene, tmp_path / "one", **shared).loop.run(until=6)
    medusa = course(scene, tmp_path / "two", "medusa", **shared)
    asked = counted(medusa)
    assert same(weights(medusa), weights(course(scene, tmp_path / "alone", "medusa")))
    assert len(asked) < 24, "what the first kind left is read"
    third = course(scene, tmp_path / "three", **shared)
    asked = counted(third)
    assert same(weights(third), plain) and asked, "rows that lack its taps are asked for again"


def test_what_was_cut_off_is_made_again_and_nan_is_refused(scene, tmp_path):
    own = {"cache_bytes": 1 << 24, "cache_dir": str(tmp_path / "states")}
    plain = weights(course(scene, tmp_path / "one", **own))
    files = sorted((tmp_path / "states").glob("*.safetensors"))
    whole = {path: path.read_bytes() for path in files}
    for n, path in enumerate(files):
        path.write_bytes(whole[path][: len(whole[path]) * (n % 3) // 3])
    (tmp_path / "states" / f"{files[0].name}.part-1-0").write_bytes(b"half")
    assert same(weights(course(scene, tmp_path / "two", **own)), plain)
    assert whole == {path: path.read_bytes() for path in files}
    held = load_file(files[0])
    held["hidden"][3] = torch.nan
    save_file(held, files[0])
    with pytest.raises(ConfigError, match=r"not finite numbers \(hidden\): delete it"):
        weights(course(scene, tmp_path / "three", **own))
    for path in files:
        held = load_file(path)
        save_file({**held, "hidden": held["hidden"] * 0, "ids": held["ids"] + 1}, path)
    assert same(weights(course(scene, tmp_path / "four", **own)), plain), "of other ids it is not these rows'"
    (tmp_path / "states/about.json").write_text("{")
    with pytest.raises(ConfigError, match=r"about\.json cannot be read"):
        course(scene, tmp_path / "five", **own)


def test_a_target_whose_states_are_no_numbers_is_refused_before_anything_is_kept(scene, tmp_path):
    one = course(scene, tmp_path / "one", cache_bytes=1 << 24)
    with torch.no_grad():
        one.teacher.target.embedding[5] = torch.nan
    with pytest.raises(Exception, match="are not finite numbers"):
        one.loop.run()
    assert not list((tmp_path / "one/run/states").glob("*.safetensors"))


def test_the_last_state_is_kept_once(scene, tmp_path):
    one = course(scene, tmp_path / "one", "medusa", cache_bytes=1 << 24)
    assert one.learner.taps == (3,)
    one.loop.run(until=1)
    for path in (tmp_path / "one/run/states").glob("*.safetensors"):
        assert load_file(path).keys() == {"ids", "hidden"}


def test_texts_of_the_draft_are_not_kept(scene, tmp_path):
    one = course(scene, tmp_path / "one", "draft_model", cache_bytes=1 << 24, on_policy=1.0)
    one.loop.run(until=2)
    assert not list((tmp_path / "one/run/states").glob("*.safetensors"))


def test_the_budget_counts_what_lies_there(tmp_path):
    about = {"target": {"num_layers": 2}, "taps": []}
    states = PassStates(hidden=torch.ones(16, 8), taps={})
    one, two = (lesson_rows(rows(1) + n) for n in (0, 1))
    cache = PassCache(tmp_path, about, 2000)
    cache.keep(one, states)
    cache.keep(two, states)
    assert cache.find(one) is not None and cache.find(two) is None
    again = PassCache(tmp_path, about, 2000)
    again.keep(two, states)
    assert again.find(two) is None and torch.equal(again.find(one).hidden, states.hidden)


def test_workers_share_what_is_left_of_the_budget(tmp_path):
    """One file lies there, of a budget for four: each of two workers may write one more."""
    about, states = {"target": {"num_layers": 2}, "taps": []}, PassStates(hidden=torch.ones(16, 512), taps={})
    passes = [lesson_rows(rows(1) + n) for n in range(4)]
    PassCache(tmp_path, about, 100_000).keep(passes[0], states)
    (size,) = (file.stat().st_size for file in tmp_path.glob("*.safetensors"))
    workers = [PassCache(tmp_path, about, 4 * size, workers=2) for _ in range(2)]
    for worker, own in zip(workers, passes[1:3], strict=True):
        worker.keep(own, states)
        worker.keep(passes[3], states)
    assert [workers[0].find(one) is not None for one in passes] == [True, True, True, False]


@pytest.fixture
def full_disk(monkeypatch):
    """Files may not grow beyond 4 KB, which is refused as a full disk is."""
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def full(is_full):
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096 if is_full else limits[0], limits[1]))

    yield full
    full(False)
    signal.signal(signal.SIGXFSZ, before)


def test_a_full_disk_ends_the_cache_and_not_the_training(tmp_path, full_disk, caplog):
    about, states = {"target": {"num_layers": 2}, "taps": []}, PassStates(hidden=torch.ones(16, 512), taps={})
    passes = [lesson_rows(rows(1) + n) for n in range(3)]
    cache = PassCache(tmp_path, about, 1 << 30)
    cache.keep(passes[0], states)
    full_disk(True)
    cache.keep(passes[1], states)
    full_disk(False)
    cache.keep(passes[2], states)
    assert [cache.find(one) is not None for one in passes] == [True, False, False]
    assert [record.message.partition(" (")[0] for record in caplog.records] == [f"{tmp_path} takes no more states"]
    assert len(list(tmp_path.iterdir())) == 2, "nothing half written is left"


def test_a_checkpoint_that_finds_no_room_says_so(tmp_path, full_disk):
    state = State(
        weights={"w": torch.ones(10_000)}, optimizer=[], progress=Progress(step=3, decay_at=5, end=9, seconds=1.0)
    )
    full_disk(True)
    with pytest.raises(ConfigError, match=r"cannot be written .*: free space there and begin anew$"):
        save_state(tmp_path / "best.pt", state, tmp_path / "x.pt")
    full_disk(False)
    save_state(tmp_path / "x.pt", replace(state, weights={}))
    full_disk(True)
    with pytest.raises(ConfigError, match=r"x\.pt cannot be written .*: free space there and go on with --resume"):
        save_state(tmp_path / "x.pt", state)
    full_disk(False)
    assert load_state(tmp_path / "x.pt").progress == state.progress, "the one before is left"


def test_a_cache_is_of_the_held_out_texts_too(scene, tmp_path):
    """Evaluations keep their states there as well."""
    valid = [scene / f"{n}.jsonl" for n in (0, 1)]
    course(scene, tmp_path / "a", cache_bytes=10**9, cache_dir=str(tmp_path / "states"), valid=(str(valid[0]),))
    with pytest.raises(ConfigError, match="caches the states of another run: texts is"):
        course(scene, tmp_path / "b", cache_bytes=10**9, cache_dir=str(tmp_path / "states"), valid=(str(valid[1]),))
