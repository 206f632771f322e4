"""A draft that learns at low rank while it serves: what changes, what going back drops, who uses it."""

import pytest
import torch

from outdraft import zoo
from outdraft.adapt.learning import Learning
from outdraft.adapt.room import AdaptRoom, Pair
from outdraft.adapt.spool import SpoolWriter
from outdraft.learn.low_rank import LowRank
from outdraft.options.errors import ConfigError
from outdraft.training.computing import open_target
from outdraft.training.live import LiveDraft
from outdraft.training.live_learner import LiveLearner
from outdraft.training.served import ServedRequest

PAIR = Pair(target=zoo.path("target"), draft=zoo.path("eagle3"))
LEARN = {"lr": 3e-4, "muon_lr": 1e-3, "step_tokens": 128, "held_out": 0.0, "depth": 3, "rank": 3}


def requests(count):
    """Of 8 and 24 ids, all different."""
    ids = torch.randint(5, 4000, (count, 32), generator=torch.Generator().manual_seed(0)).tolist()
    return [ServedRequest(prompt=tuple(one[:8]), answer=tuple(one[8:])) for one in ids]


@pytest.fixture(scope="module")
def target():
    return open_target(PAIR.target, "float32", "cpu")


def ranks(weights, began):
    """Of the change of each matrix."""
    changes = {name: (one - began[name]).double() for name, one in weights.items() if one.dim() == 2}
    return {name: int(torch.linalg.matrix_rank(one, rtol=1e-4)) for name, one in changes.items()}


def test_every_matrix_changes_by_that_rank_and_a_candidate_too(target):
    live = LiveDraft(target, PAIR.draft, Learning(**LEARN))
    losses = [live.step(requests(4)) for _ in range(6)]
    assert losses[-1] < losses[0]
    found = ranks(live.weights(), live.serving)
    assert len(found) == 6 and set(found.values()) == {3}
    assert set(ranks(live.candidate(), live.serving).values()) == {3}
    moved = {name for name, one in live.weights().items() if not torch.equal(one, live.serving[name])}
    assert moved == set(live.serving), "norms learn, too"


def test_going_back_drops_what_was_learned(target):
    live, fresh = (LiveDraft(target, PAIR.draft, Learning(**LEARN)) for _ in range(2))
    for _ in range(3):
        live.step(requests(4))
    live.go_back()
    assert all(torch.equal(one, live.serving[name]) for name, one in live.weights().items())
    live.num_steps = 0
    for one in (live, fresh):
        one.step(requests(4))
    assert all(torch.equal(one, live.weights()[name]) for name, one in fresh.weights().items())
    for _ in range(2):
        live.step(requests(4))
    live.serving, reached = live.candidate(), live.weights()  # it passed: learning goes on after a failure
    live.go_back()
    assert all(torch.allclose(one, reached[name], atol=1e-5) for name, one in live.weights().items())
    for _ in range(3):
        live.step(requests(4))
    assert set(ranks(live.weights(), reached).values()) == {3}


@pytest.mark.parametrize("rank", [-1, 1 << 20, 2.5])
def test_a_rank_out_of_range_is_refused(rank):
    with pytest.raises(ConfigError, match="rank="):
        Learning(rank=rank)


def test_a_tenants_draft_learns_so(tmp_path):
    room = AdaptRoom.open(tmp_path / "room", PAIR, {"learn": LEARN, "first": 1 << 20})
    tenant = room.tenant("a" * 16)
    tenant.begin()
    spool = SpoolWriter(tenant.requests, num_kept=100, seconds=3600)
    for one in requests(8):
        spool.put({"prompt_token_ids": one.prompt, "token_ids": one.answer})
    spool.close()
    learner = LiveLearner(room)
    for _ in range(2):
        learner._turn("a" * 16)
    live = learner._pupils["a" * 16].live
    assert live.num_steps > 0 and isinstance(live.optimizer, LowRank)
    assert set(ranks(live.weights(), live.serving).values()) == {3}
