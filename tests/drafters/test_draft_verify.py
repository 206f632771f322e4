"""Draft & Verify: an empty set agrees always, identity layers may be left out, a skip set's file, one call or steps."""

import json

import pytest
import torch
from drafters.drafting import make, run_pending, sequence, write

from outdraft.core.policy import Budget
from outdraft.core.skip import NO_SKIP, Skip
from outdraft.drafters.draft_verify import DraftVerifyOptions
from outdraft.drafters.shared.networks.draft_network import target_network
from outdraft.drafters.shared.own_layers.own_chain import grow_own_chains
from outdraft.drafters.shared.own_layers.skip_sets import alternating, load_skip, save_skip
from outdraft.engine.runner import Runner
from outdraft.models.remake.inflate import inflate_decoder
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import tiny_model

MODEL = tiny_model(layers=3, vocab=31)


@pytest.fixture(autouse=True)
def as_in_the_loop():
    with torch.inference_mode():
        yield


def accepted_share(runner, drafter, **params):
    """Accepted of offered tokens over a ragged batch."""
    seqs = [sequence(prompt, max_tokens=24, **params) for prompt in ([1, 2, 3], [4], [5, 6] * 5)]
    events = write(seqs, runner, drafter, k=4).events
    offered = sum(event.num_draft_tokens for event in events)
    assert offered > 40
    return sum(event.num_accepted for event in events) / offered


def test_nothing_skipped_is_always_accepted():
    runner = Runner(MODEL)
    drafter = make("draft_verify", runner, skip_attention=())
    assert drafter.skip == NO_SKIP
    assert accepted_share(runner, drafter) > 0.9  # what a text's end cuts off is not accepted
    skipped = make("draft_verify", runner, skip_mlp=(0, 1))
    assert accepted_share(runner, skipped) < 0.7


def test_layers_that_add_nothing_may_be_skipped():
    deep = inflate_decoder(MODEL, depth=6)  # every second layer is an identity
    deep.set_exact(True)
    identity = (1, 3, 5)
    runner = Runner(deep)
    drafter = make("draft_verify", runner, skip_attention=identity, skip_mlp=identity)
    assert accepted_share(runner, drafter) > 0.9
    other = make("draft_verify", runner, skip_attention=(0, 2, 4), skip_mlp=(0, 2, 4))
    assert accepted_share(runner, other) < 0.7


def test_an_empty_set_draws_from_the_targets_own_distribution():
    runner = Runner(MODEL)
    drafter = make("draft_verify", runner, skip_mlp=())
    seq = sequence([1, 2, 3, 4], temperature=0.8, k=0)
    with pytest.raises(ZeroDivisionError):
        write([seq], runner, drafter, each_step=lambda _: 1 / 0)
    (draft,) = drafter.propose([seq], [Budget(depth=2)])
    (none,) = drafter.propose([seq], [Budget(depth=0)])
    expected = torch.softmax(runner.port.layers.logits(run_pending([seq], runner)) / 0.8, -1)[0]
    torch.testing.assert_close(draft.q[0], expected.to(draft.q.dtype), atol=1e-6, rtol=0)
    assert draft.num_nodes == 3 and none.num_nodes == 1


def test_a_budget_may_ask_for_surer_tokens():
    runner = Runner(MODEL)
    drafter = make("draft_verify", runner, skip_mlp=(1,))
    seqs = [sequence(prompt, k=0) for prompt in ([1, 2, 3, 4], [5])]
    with pytest.raises(ZeroDivisionError):
        write(seqs, runner, drafter, each_step=lambda _: 1 / 0)
    strict, free = drafter.propose(seqs, [Budget(depth=4, confidence=1.0), Budget(depth=4)])
    assert strict.num_nodes == 2 and free.num_nodes == 5  # the unsure token stays and ends its chain
    assert 0 < float(strict.confidence[1]) < 1 and len(free.confidence) == 5


def test_texts_that_leave_out_other_layers_share_a_batch():
    """Each row of logits comes back to its own text, whichever pass it was in."""
    runner, skips = Runner(MODEL), [Skip(mlp=frozenset({1})), NO_SKIP, Skip(mlp=frozenset({1})), Skip(frozenset({2}))]
    seqs = [sequence(prompt, k=0) for prompt in ([1, 2, 3, 4], [5], [6, 7], [8, 9, 10])]
    with pytest.raises(ZeroDivisionError):
        write(seqs, runner, make("none"), each_step=lambda _: 1 / 0)
    network, options = target_network(runner.port), DraftVerifyOptions()

    def chains(seqs, skips):
        budgets = [Budget(depth=3)] * len(seqs)
        return grow_own_chains(seqs, budgets, network, runner.port.rows.tentative, options, skips)

    together = chains(seqs, skips)
    for seq, skip, draft in zip(seqs, skips, together, strict=True):
        (alone,) = chains([seq], [skip])
        assert draft.tokens.tolist() == alone.tokens.tolist() and draft.num_nodes == 4
    assert chains(seqs[:1], [NO_SKIP])[0].tokens.tolist() != together[0].tokens.tolist()


def test_alternating_keeps_the_ends():
    assert alternating(8, 0.45) == Skip(frozenset({1, 3, 5}), frozenset({1, 3, 5}))
    assert alternating(8, 1.0).mlp == frozenset(range(1, 7))
    assert alternating(2, 0.9) == alternating(1, 0.9) == alternating(8, 0) == NO_SKIP
    assert make("draft_verify", Runner(tiny_model(layers=4))).skip == alternating(4, 0.45)


def test_a_skip_file_comes_back_and_bad_ones_are_refused(tmp_path):
    path, skip = tmp_path / "skip.json", Skip(frozenset({2}), frozenset({0, 1}))
    save_skip(skip, 3, path, score=1.5)
    assert load_skip(path, 3) == skip
    assert make("draft_verify", Runner(MODEL), skip=str(path)).skip == skip
    with pytest.raises(ConfigError, match=r"3 layers, the target has 4.*tune-skip"):
        load_skip(path, 4)
    for text, culprit in (("{", "cannot be read"), ("[1]", "no lists"), (json.dumps({"attention": [1]}), "no lists")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=culprit):
            load_skip(path, 3)
    path.write_text(json.dumps({"attention": [3], "mlp": []}))
    with pytest.raises(ConfigError, match="names layer 3"):
        load_skip(path, 3)


@pytest.mark.parametrize(
    "bad", [{"sample": "x"}, {"confidence_threshold": 2}, {"skip": "a", "skip_mlp": (1,)}, {"skip_attention": (7,)}]
)
def test_bad_options(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        make("draft_verify", Runner(MODEL), **bad)
