"""A draft that learns from served requests: what it learns from, what it is judged on, and what it hands over."""

import json
from dataclasses import replace

import pytest
import torch

from outdraft import LLM, SamplingParams, zoo
from outdraft.adapt.gate import GateOptions
from outdraft.adapt.learning import Learning
from outdraft.options.errors import ConfigError
from outdraft.training.computing import open_target
from outdraft.training.live import LiveDraft
from outdraft.training.live_replay import LiveReplay
from outdraft.training.served import ServedRequest, read_served
from tests.training.forms import filled_forms

TARGET = zoo.path("target")
QUICK = Learning(lr=3e-3, muon_lr=5e-3, step_tokens=512, held_out=0.25, depth=3, epochs=1.0)


@pytest.fixture(scope="module")
def served():
    return [
        ServedRequest(prompt=tuple(one.prompt_token_ids), answer=tuple(one.token_ids), domain="forms")
        for one in filled_forms()
    ]


@pytest.fixture(scope="module")
def target():
    return open_target(TARGET, "auto", "cpu")


@pytest.fixture
def live(target):
    return LiveDraft(target, zoo.path("eagle3"), QUICK)


def test_what_is_learned_helps_where_nothing_was_learned_from(live, served):
    held = [one for one in served if live.add(one)]
    assert 0 < len(held) < len(served)
    before = live.weights()
    losses = [live.learn() for _ in range(12)]
    assert sum(losses[-4:]) < sum(losses[:4])
    old, new = live.judge(held, (before, live.weights()))
    assert sum(new) > sum(old) and all(0 <= one <= QUICK.depth for one in (*old, *new))
    assert live.judge(held, (live.serving,)) == [pytest.approx(old)], "what serves has not changed"


def test_requests_that_only_judge_are_never_learned_from(live, served):
    held = [one for one in served if live.add(one)]
    chosen = []
    rows = live._rows
    live._rows = lambda some: (chosen.extend(some), rows(some))[1]
    for _ in range(6):
        live.learn()
    assert set(chosen) and not set(chosen) & set(held)
    assert len(chosen) > len(set(chosen)), "earlier requests come again"
    again = replace(held[0], answer=held[0].answer[:10])
    assert again.number == held[0].number and live.add(again), "the same prompt is held out again"


def test_a_draft_alone_and_in_a_batch_is_judged_alike(live, served):
    together = live.judge(served[:5], (live.serving,))[0]
    assert together == pytest.approx([live.judge([one], (live.serving,))[0][0] for one in served[:5]], abs=1e-4)


def test_drafts_are_judged_alike_in_any_order_in_bfloat16(served):
    live = LiveDraft(open_target(TARGET, "bfloat16", "cpu"), zoo.path("eagle3"), QUICK)
    wrecked = {name: -one for name, one in live.serving.items()}
    sound, bad = live.judge(served[:4], (live.serving, wrecked))
    assert live.judge(served[:4], (wrecked, live.serving)) == [pytest.approx(bad), pytest.approx(sound)]
    assert sum(bad) < 0.5 * sum(sound)


def test_going_back_undoes_what_was_learned(live, served):
    for one in served:
        live.add(one)
    live.learn()
    assert any(not torch.equal(one, live.serving[name]) for name, one in live.weights().items())
    live.go_back()
    assert all(torch.equal(one, live.serving[name]) for name, one in live.weights().items())


def test_what_is_handed_over_drafts_as_it_was_judged(target, live, served, tmp_path):
    for one in served:
        live.add(one)
    for _ in range(12):
        live.learn()
    expected = live.judge(served, (live.weights(),), temperature=0.0)[0]
    live.write(live.weights(), tmp_path / "new")
    greedy = SamplingParams(max_tokens=48, ignore_eos=True)
    prompts = [{"prompt_token_ids": list(one.prompt)} for one in served]

    def tau(head):
        drafter = {"name": "eagle3", "model": head, "width": 1}
        with LLM("zoo:target", drafter=drafter, num_speculative_tokens=QUICK.depth, dtype="float32") as llm:
            stats = [one.stats for one in llm.generate(prompts, greedy)]
            return sum(one.num_tokens for one in stats) / sum(one.num_steps for one in stats)

    assert LiveDraft(target, tmp_path / "new", QUICK).kind == "eagle3", "it may learn on"
    saved, known = live.read(tmp_path / "new"), live.weights()  # in the target's number format
    assert all(torch.equal(one.bfloat16(), known[name].bfloat16()) for name, one in saved.items())
    assert tau(str(tmp_path / "new")) > tau("zoo:eagle3") and max(expected) > 0


def test_a_replay_lets_in_what_helps_and_nothing_else(target, served):
    def after(settings, gate):
        replay = LiveReplay(live=LiveDraft(target, zoo.path("eagle3"), settings), gate=gate, first=2048)
        return replay, list(replay.run(served * 4))

    replay, points = after(QUICK, GateOptions(alpha=0.5, least=2, most=60, margin=0.4))
    assert replay.version > 0 and points[0].version == 0 and points[0].first == points[0].serving
    late = [one for one in points if one.version]
    assert sum(one.serving for one in late) > sum(one.first for one in late)
    wrong = replace(QUICK, lr=0.5, muon_lr=0.5)
    replay, points = after(wrong, GateOptions(alpha=0.05, least=2, most=60))
    assert replay.candidates.tries and not replay.version and all(one.serving == one.first for one in points)
    assert len(replay.turns) == replay.candidates.tries


def test_a_file_of_requests(tmp_path):
    place = tmp_path / "served.jsonl"
    place.write_text(json.dumps({"prompt_token_ids": [1, 2], "token_ids": [3, 4], "domain": "code"}) + "\n")
    assert read_served(place) == [ServedRequest(prompt=(1, 2), answer=(3, 4), domain="code")]
    place.write_text(json.dumps({"prompt": "no ids"}) + "\n")
    with pytest.raises(ConfigError, match="line 1: a served request has prompt_token_ids"):
        read_served(place)
    place.write_text(json.dumps({"prompt_token_ids": [1], "token_ids": [3]}) + "\n")
    heard = []
    assert read_served(place, tell=heard.append) == [] and "1 answers of one token are left out" in heard[0]
    place.write_text(json.dumps({"prompt_token_ids": [1], "token_ids": []}) + "\n")
    with pytest.raises(ConfigError, match="an answer of 0: leave it out"):
        read_served(place)
    for wrong in ({"held_out": 1.0}, {"step_tokens": 1}, {"clip": 0}, {"depth": 0}):
        with pytest.raises(ConfigError):
            Learning(**wrong)
