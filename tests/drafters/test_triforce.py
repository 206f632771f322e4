"""TriForce: planted chunks are retrieved, the small drafter changes passes but no token, the distribution is the view's
own."""

import json
from dataclasses import replace

import pytest
import torch
from contracts.sides import twin
from drafters.drafting import make, sequence, write

from outdraft.core.draft import Continuation
from outdraft.core.policy import Budget
from outdraft.drafters import triforce as middle
from outdraft.drafters.triforce import retrieve_rows
from outdraft.engine.runner import Runner
from outdraft.models.files.load import save_model
from outdraft.options.errors import CacheFullError, CapabilityError, ConfigError
from outdraft.testing.tiny import tiny_model
from tests.helpers.enumerate_distribution import BranchingDraftCoins, outcomes

MODEL = tiny_model(layers=3, vocab=31)
PROMPTS = ([1, 2, 3] * 7, [4, 4], [5, 6] * 15)


@pytest.fixture(autouse=True)
def as_in_the_loop():
    with torch.inference_mode():
        yield


@pytest.fixture
def small(tmp_path):
    return {"method": "draft_model", **twin(MODEL, tmp_path)}


def test_the_planted_chunk_is_retrieved():
    keys = torch.randn(2, 67, 8, generator=torch.Generator().manual_seed(1)) * 0.1
    queries = torch.ones(4, 8)
    keys[0, 24:32] += 1.0  # chunk 3 for the first head, chunk 6 for the second
    keys[1, 48:56] += 1.0
    rows = retrieve_rows(keys, queries, budget=19, chunk=8)
    for head, planted in ((0, 24), (1, 48)):
        assert rows[head].tolist() == [*range(8), *range(planted, planted + 8), 64, 65, 66]
    assert retrieve_rows(keys, queries, budget=1000, chunk=8).tolist() == [list(range(67))] * 2


def test_a_budget_that_holds_the_text_is_always_accepted(small):
    shares = []
    for budget in (80, 4):
        runner = Runner(MODEL)
        drafter = make("triforce", runner, draft=small, budget=budget, chunk=2, refresh=3)
        events = write([sequence(p, max_tokens=24) for p in PROMPTS], runner, drafter, k=5).events
        shares.append(sum(e.num_accepted for e in events) / sum(e.num_draft_tokens for e in events))
        assert not drafter.views._copied and drafter._small.model.is_empty
    assert shares[0] > 0.9 and shares[1] < 0.8


@pytest.mark.parametrize("params", [{}, {"temperature": 0.9, "coupled": True}])
def test_the_small_drafter_saves_passes_and_changes_no_token(small, params, tmp_path):
    """The chain is what the view alone draws, token by token, with the distribution that it was drawn from."""
    runner = Runner(MODEL)
    seqs = [sequence(p, k=0, max_tokens=40, **params) for p in PROMPTS]
    with pytest.raises(ZeroDivisionError):
        write(seqs, runner, make("none"), each_step=lambda live: live[-1].num_output < 2 or 1 / 0)
    options = {"budget": 8, "chunk": 2}
    drafter, alone = make("triforce", runner, draft=small, **options), make("magicdec", runner)
    drafter.begin(seqs)
    alone.views, views = drafter.views, drafter.views
    budgets = [Budget(depth=depth) for depth in (6, 4, 1)]
    drafts = drafter.propose(seqs, budgets)
    alone._bring_up = views.follow
    for draft, plain in zip(drafts, alone.propose(seqs, budgets), strict=True):
        assert torch.equal(draft.tokens, plain.tokens)
        assert (draft.q is None) == (plain.q is None) == (not params)
        if draft.q is not None:
            torch.testing.assert_close(draft.q, plain.q, atol=1e-9, rtol=0)
    assert [draft.num_nodes for draft in drafts] == [7, 5, 2]
    assert drafter.num_passes < 6
    again = drafter.propose(seqs[:1], budgets[:1])[0]  # what the small one took for text is taken back
    assert torch.equal(again.tokens, drafts[0].tokens)


def test_a_pass_that_finds_no_room_ends_the_chain_and_drops_nothing(small, monkeypatch):
    """How many passes a chain takes depends on its tokens, so a chain that is dropped would be chosen by them."""
    runner = Runner(MODEL)
    seq = sequence(PROMPTS[0], k=0, max_tokens=40, temperature=0.9)
    with pytest.raises(ZeroDivisionError):
        write([seq], runner, make("none"), each_step=lambda live: live[0].num_output < 2 or 1 / 0)
    drafter = make("triforce", runner, draft=small, budget=8, chunk=2)
    drafter.begin([seq])
    whole = drafter.propose([seq], [Budget(depth=6)])[0]
    needed, extend, passes = drafter.num_passes, drafter.views.extend, [0]
    assert needed > 1

    def full(room):
        def extend_or_not(*asked):
            passes[0] += 1
            if passes[0] > room:
                raise CacheFullError("planted: the pool is full")
            return extend(*asked)

        passes[0] = 0
        monkeypatch.setattr(drafter.views, "extend", extend_or_not)

    full(room=1)
    part = drafter.propose([seq], [Budget(depth=6)])[0]
    assert 1 < part.num_nodes < whole.num_nodes and torch.equal(part.tokens, whole.tokens[: part.num_nodes])
    inner = part.num_nodes - 1  # the last node has no child, and no distribution
    assert torch.equal(part.q[:inner], whole.q[:inner])
    full(room=0)
    with pytest.raises(CacheFullError):
        drafter.propose([seq], [Budget(depth=6)])


def enumerated(drafter, seq):
    """The distribution of chains of three tokens over every coin, and the one that they claim to have."""
    chains = torch.zeros(3, 3, 3, dtype=torch.float64)
    claimed = torch.zeros(3, 3, 3, dtype=torch.float64)

    def run(chance):
        coins = BranchingDraftCoins(chance)
        draft = drafter.propose([replace(seq, draft_coins=lambda _: coins)], [Budget(depth=3)])[0]
        return draft.tokens[1:].tolist(), draft.q

    for mass, (tokens, q) in outcomes(run):
        chains[tuple(tokens)] += mass
        claimed[tuple(tokens)] = float(torch.stack([q[i, token] for i, token in enumerate(tokens)]).prod())
    return chains, claimed


def test_sampled_small_guesses_are_judged_by_rejection_sampling(tmp_path, monkeypatch):
    """The chain has exactly the distribution that it claims; one that drew from p after a rejection would not."""
    target = tiny_model(layers=2, vocab=3, max_len=64)
    save_model(tiny_model(layers=1, vocab=3, max_len=64, seed=5), tmp_path)
    runner = Runner(target)
    drafter = make(
        "triforce", runner, draft={"method": "draft_model", "model": str(tmp_path)}, draft_depth=1, budget=6, chunk=2
    )
    seq = sequence([0, 1, 2] * 4, k=0, temperature=1.5)
    with pytest.raises(ZeroDivisionError):
        write([seq], runner, make("none"), each_step=lambda live: live[0].num_output < 2 or 1 / 0)
    drafter.begin([seq])
    chains, claimed = enumerated(drafter, seq)
    assert (chains - claimed).abs().sum() / 2 < 1e-9
    assert drafter.num_inner_accepted > 0 and drafter.num_inner_rejected > 0

    def forgetful(p, token, q, flip, draw):
        return token if flip(min(1.0, float(p[token] / q[token]))) else draw(p)

    monkeypatch.setattr(middle, "keep_or_redraw", forgetful)
    chains, claimed = enumerated(drafter, seq)
    assert (chains - claimed).abs().sum() / 2 > 0.01


@pytest.mark.parametrize("params", [{}, {"presence_penalty": 2.0}, {"repetition_penalty": 2.5, "temperature": 0.7}])
def test_a_small_drafter_that_is_the_target_guesses_all_with_its_penalties(params, tmp_path):
    save_model(MODEL, tmp_path)
    runner = Runner(MODEL)
    drafter = make("triforce", runner, draft={"method": "draft_model", "model": str(tmp_path)}, budget=200)
    seq = sequence([1, 2, 3] * 7, k=0, **params)
    with pytest.raises(ZeroDivisionError):
        write([seq], runner, make("none"), each_step=lambda live: live[0].num_output < 5 or 1 / 0)
    drafter.begin([seq])
    assert drafter.propose([seq], [Budget(depth=16)])[0].num_nodes == 17
    assert drafter.num_passes == 4  # of three guesses and one more token each


def test_a_small_model_with_a_streaming_cache_goes_on_beyond_its_context(tmp_path):
    """The target's own weights as the small model, which may hold 24 positions; the text is three times as long."""
    save_model(MODEL, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 24}))
    passes = {}
    for window in (None, 16):
        runner = Runner(MODEL)
        draft = {"method": "draft_model", "model": str(tmp_path), "sinks": 2, "window": window}
        drafter = make("triforce", runner, draft=draft, budget=200)
        events = write([sequence([1, 2, 3] * 7, max_tokens=50, ignore_eos=True)], runner, drafter, k=6).events
        passes[window] = drafter.num_passes / len(events)
    assert passes[None] > 4  # the middle level goes on alone, token by token
    assert passes[16] < passes[None] - 1
    assert drafter._small.model._cache.num_dropped > 40


def test_room_for_the_whole_chain_is_taken_at_once(small):
    """Whatever was guessed by then, every pass of the middle level asks for rows up to the chain's end."""
    runner = Runner(MODEL)
    seqs = [sequence(p, k=0) for p in PROMPTS]
    with pytest.raises(ZeroDivisionError):
        write(seqs, runner, make("none"), each_step=lambda live: live[-1].num_output < 2 or 1 / 0)
    drafter, asked = make("triforce", runner, draft=small, draft_depth=1, budget=8, chunk=2), []
    drafter.begin(seqs)
    extend = drafter.views.extend

    def watched(seqs, offsets, counts, rooms):
        asked.extend((seq.id, offset + room) for seq, offset, room in zip(seqs, offsets, rooms, strict=True))
        assert all(count <= room for count, room in zip(counts, rooms, strict=True))
        return extend(seqs, offsets, counts, rooms)

    drafter.views.extend = watched
    drafter.propose(seqs, [Budget(depth=depth) for depth in (6, 4, 2)])
    assert len(asked) > 5 and set(asked) == {(seq.id, depth) for seq, depth in zip(seqs, (6, 4, 2), strict=True)}


def test_no_two_verdicts_of_the_middle_level_share_a_coin():
    ordinals = []

    class Asked:
        def draw(self, distribution, depth, ordinal, count=1):
            ordinals.append(ordinal)
            return [int(distribution.argmax())]

    made = middle.Middle([replace(sequence([1, 2], temperature=1.0), draft_coins=lambda _: Asked())], "match")
    logits, q = torch.tensor([0.0, 9.0, -torch.inf]), torch.tensor([0.1, 0.1, 0.8])
    for depth in range(6):  # an impossible guess: it is judged, then another token is drawn in its place
        assert made.write(0, logits, [[1] * depth], Continuation(token=2, q=q))[0] == 1
    assert made.num_rejected == 6 and len(ordinals) == len(set(ordinals)) == 12


def test_what_it_refuses():
    with pytest.raises(
        CapabilityError, match=r"triforce asks .*'ngram' cannot go back here: choose a drafter whose guesses"
    ):
        make("triforce", Runner(MODEL), draft="ngram")
    for bad in ({"draft_depth": 0}, {"chunk": 0}, {"refresh": 0}, {"budget": 10}, {"sample": "x"}):
        with pytest.raises(ConfigError, match=next(iter(bad))):
            make("triforce", Runner(MODEL), **bad)
