"""Draft on the fly: attentions that do nothing are dropped, each prompt has its own set, no pass is added."""

from dataclasses import replace

import pytest
import torch
from drafters.drafting import greedy_rule, make, sequence, states, write

from outdraft.core.registry import find, make_options
from outdraft.core.target import after_attention
from outdraft.decode.parts import Parts
from outdraft.decode.step import step
from outdraft.drafters.on_the_fly_skip import OnTheFlySkipOptions, choose
from outdraft.engine.runner import Runner
from outdraft.nn.context import CausalContext
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import tiny_model

MODEL = tiny_model(layers=6, vocab=31)
for _layer in (2, 3):
    MODEL.layers[_layer].out.weight.mul_(0.001)  # these attentions add next to nothing
MODEL.set_exact(True)


@pytest.fixture(autouse=True)
def as_in_the_loop():
    with torch.inference_mode():
        yield


class Counted:
    """A runner that counts its passes."""

    def __init__(self, runner):
        self.runner, self.tapped = runner, []

    def __getattr__(self, name):
        return getattr(self.runner, name)

    def forward(self, packed, taps=()):
        self.tapped.append((sum(packed.num_certain), len(taps)))
        return self.runner.forward(packed, taps)


def started(prompts, **options):
    target = Counted(Runner(MODEL))
    drafter = make("on_the_fly_skip", target, **options)
    seqs = [sequence(prompt, max_tokens=12) for prompt in prompts]
    found = {}

    def note(live):
        found.update({seq.id: drafter._skips[seq.id] for seq in live})

    run = write(seqs, target, drafter, k=4, each_step=note)
    return target, [found[seq.id] for seq in seqs], run, drafter


def test_attentions_that_add_nothing_are_dropped_without_an_extra_pass():
    target, skips, run, drafter = started(([1, 2, 3, 4], [5, 6]), threshold=0.9999, slack=0)
    assert [skip.attention for skip in skips] == [{2, 3}, {2, 3}] and not skips[0].mlp
    assert len(target.tapped) == run.passes
    assert {taps for certain, taps in target.tapped if certain} == {12}
    assert {taps for certain, taps in target.tapped if not certain} == {0}
    assert sum(event.num_accepted for event in run.events) > 0.9 * sum(event.num_draft_tokens for event in run.events)
    assert all(not kept for kept in states(drafter).values())


def test_a_prompt_that_is_read_beside_a_text_changes_nothing_for_it():
    """A pass that reads a prompt taps the rows of every sequence; the set that a text has chosen stays."""
    target = Runner(MODEL)
    drafter = make("on_the_fly_skip", target, threshold=0.9999, slack=0)
    first, short, late = sequence([1, 2, 3, 4]), sequence([6]), sequence([5, 9, 2, 7] * 10)
    policy = find("policy", "fixed").build(make_options(find("policy", "fixed"), {"num_speculative_tokens": 3}), ())
    parts = Parts(target=target, drafter=drafter, verifier=greedy_rule, policy=policy)
    for seq in (first, short, late):
        seq.num_cached = target.begin(seq)
        drafter.begin([seq])
    late.turn = replace(late.turn, max_chunk=4)
    step([first], parts)
    chosen = drafter._skips[first.id]
    assert chosen.attention == {2, 3}
    while late.num_unread:
        step([first, short, late], parts)
        assert drafter._skips[first.id] == chosen
    assert drafter._skips[late.id].attention == {2, 3}
    assert not drafter._skips[short.id], "a prompt of one token gives no comparison, in any company"


def test_the_measure_is_the_mean_cosine_of_the_prompt():
    prompt = [1, 2, 3, 4, 5]
    ids, places = torch.tensor(prompt), torch.arange(5)
    taps = [tap for i in range(6) for tap in (i, after_attention(i))]
    out = MODEL.run(MODEL.embed(ids, places), places, CausalContext(1, 5), taps=taps).taps
    cosines = [float(torch.cosine_similarity(out[i], out[after_attention(i)], -1).mean()) for i in range(6)]
    middle = sorted(cosines[1:5])
    for threshold in (middle[1] - 1e-4, middle[1] + 1e-4):
        _, (skip,), _, _ = started((prompt,), threshold=threshold, slack=0)
        assert skip.attention == {i for i in range(1, 5) if cosines[i] >= threshold}


def test_each_prompt_has_its_own_set():
    sets = {started(([i, 3 * i % 31, i + 1],), threshold=0.75, slack=0)[1][0] for i in range(1, 25)}
    assert len(sets) > 1


def test_nothing_dropped_drafts_nothing():
    _, skips, run, _ = started(([1, 2, 3], [4]), threshold=1.0, slack=0)
    assert not any(skips) and not any(event.num_draft_tokens for event in run.events)


def test_the_rules():
    def dropped(cosines, **options):
        return choose(cosines, OnTheFlySkipOptions(**options)).attention

    cosines = [0.99, 0.98, 0.965, 0.95, 0.965, 0.99]
    assert dropped(cosines) == {1, 2}
    assert dropped(cosines, keep_ends=False) == {0, 1, 2, 4, 5}
    assert dropped(cosines, slack=0) == {1}


@pytest.mark.parametrize("bad", [{"threshold": 1.5}, {"slack": -0.1}, {"sample": "x"}])
def test_bad_options(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        make("on_the_fly_skip", Runner(MODEL), **bad)
