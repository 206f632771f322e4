"""Merged trees: shared beginnings, distributions by node, shares of the budget, and what each drafter observes."""

from dataclasses import replace

import pytest
import torch
from drafters.drafting import make, sequence, write
from drafters.test_draft_model import DECODER, DecoderTarget, Port, small_decoder

from outdraft import LLM
from outdraft.core.draft import chain, host_tree
from outdraft.core.drafter import Seen, Traits
from outdraft.core.policy import Budget
from outdraft.core.room import Unbounded
from outdraft.core.target import Needs
from outdraft.core.verdict import Verdict
from outdraft.decode.fit import what_fits
from outdraft.drafters.merge import MergeDrafter, join
from outdraft.drafters.shared.composed.ahead import imagine
from outdraft.drafters.shared.composed.nested import in_lane
from outdraft.engine.runner import Runner
from outdraft.models.files.load import save_model
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.testing.tiny import tiny_model
from outdraft.verify.auto import Auto
from tests.helpers.enumerate_distribution import exact_distribution, target_distribution, total_variation
from tests.helpers.tables import drafts_from, random_table

V = 23


class Fixed:
    """Proposes given drafts, remembers what it observed."""

    traits = Traits()

    def __init__(self, draft, **needs):
        self.draft, self.needs, self.told, self.budgets = draft, Needs(**needs), [], []

    def begin(self, seqs): ...

    def propose(self, seqs, budgets):
        self.budgets.append(budgets[0])
        return [self.draft if budgets[0].depth else chain([seq.pending]) for seq in seqs]

    def observe(self, seen):
        self.told += seen

    def end(self, seqs): ...


class FourRows(Unbounded):
    """Memory for so many."""

    capacity, free = 99, 4

    def missing(self, seq, num_rows):
        return num_rows


def merged(*drafts, temperature=1.0):
    made = MergeDrafter([Fixed(draft) for draft in drafts], ["fixed"] * len(drafts))
    seq = sequence([7, 9], temperature=temperature)
    return made, seq, made.propose([seq], [Budget(depth=9)])[0]


def test_certain_guesses_share_their_beginnings():
    draft = merged(chain([9, 1, 2, 3]), chain([9, 1, 2, 4]), chain([9, 5]))[2]
    assert draft.tokens.tolist() == [9, 1, 2, 3, 4, 5] and draft.parents.tolist() == [-1, 0, 1, 2, 2, 0]
    assert draft.q is None and draft.drawn_from is None


def test_sampled_guesses_keep_their_distributions():
    a = chain([9, 1, 2], torch.full((2, V), 1 / V))
    b = chain([9, 1, 3], torch.softmax(torch.arange(V).float(), -1).repeat(2, 1))
    draft = merged(a, b, chain([9, 1]))[2]
    assert draft.tokens.tolist() == [9, 1, 2, 1, 3, 1] and draft.parents.tolist() == [-1, 0, 1, 0, 3, 0]
    rows = draft.q[draft.drawn_from[1:]]
    assert torch.equal(rows[0], a.q[0]) and torch.equal(rows[2], b.q[0]) and torch.equal(rows[3], b.q[1])
    assert rows[4].tolist() == [float(i == 1) for i in range(V)]
    tree = host_tree(draft)  # the eldest child's distribution is its parent's row
    assert all(int(draft.drawn_from[children[0]]) == node for node, children in enumerate(tree.children) if children)


@pytest.mark.parametrize("certain", [False, True])
def test_the_distribution_is_the_targets(certain):
    target, a, b = random_table(3, 2, 1), random_table(3, 2, 2, spread=2), random_table(3, 2, 3)
    first, second = drafts_from(a, (-1, 0, 0, 1)), drafts_from(b, (-1, 0, 1), sampled=not certain)

    def propose(tokens, coins):
        drafts = [first(tokens, coins), second(tokens, coins)]
        return join(drafts, [host_tree(draft) for draft in drafts], as_certain=False).draft

    distribution = exact_distribution(Auto(), target, propose, [0, 1], 3)
    assert total_variation(distribution, target_distribution(target, [0, 1], 3)) < 1e-9


def sure(tokens, confidence, q=None):
    return chain(tokens, q, confidence=torch.tensor(confidence))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_confidences_stay_with_their_nodes(temperature):
    """A shared node has the first drafter's. A drafter that guesses nothing need say nothing; else all must say it."""
    q = torch.full((2, V), 1 / V) if temperature else None
    a, b, silent = sure([9, 1, 2], [1, 0.7, 0.6], q), sure([9, 1, 3], [1, 0.5, 0.4], q), chain([9])
    draft = merged(silent, a, b, temperature=temperature)[2]
    wanted = {1: [0.7, 0.5], 2: [0.6], 3: [0.4]} if temperature else {1: [0.7], 2: [0.6], 3: [0.4]}
    found = {token: draft.confidence[draft.tokens == token].tolist() for token in (1, 2, 3)}
    assert found == {token: pytest.approx(values) for token, values in wanted.items()} and draft.confidence[0] == 1
    assert merged(a, chain([9, 4]), temperature=temperature)[2].confidence is None
    assert merged(silent, silent, temperature=temperature)[2].confidence is None


def test_each_observes_its_own_guess():
    made, seq, draft = merged(chain([9, 1, 2, 3]), chain([9, 1, 5]), chain([9, 6]), temperature=0.0)
    assert draft.tokens.tolist() == [9, 1, 2, 3, 5, 6]
    logits = torch.arange(6).float()[:, None].repeat(1, V)
    made.observe(
        [Seen(seq=seq, start=1, num_committed=3, draft=draft, logits=logits, verdict=Verdict((1, 2), 8, False))]
    )
    told = [drafter.told[0] for drafter in made.drafters]
    assert [one.verdict for one in told] == [Verdict((1, 2), 8, False), Verdict((1,), 2, False), Verdict((), 1, False)]
    assert [one.logits[:, 0].tolist() for one in told] == [[0, 1, 2, 3], [0, 1, 4], [0, 5]]
    assert [one.draft for one in told] == [drafter.draft for drafter in made.drafters]
    made.end([seq])
    assert not made._guesses


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_each_observes_its_own_guess_where_memory_cut_the_tree(temperature):
    """The first four of five nodes had room, and the second drafter's token was right."""
    q = torch.full((2, V), 1 / V) if temperature else None
    made, seq, draft = merged(chain([9, 1, 2], q), chain([9, 5, 6], q), temperature=temperature)
    seq.num_cached = 1
    (fits,) = what_fits([seq], [draft], FourRows())
    assert fits.tokens.tolist() == [9, 1, 2, 5]
    logits = torch.arange(4).float()[:, None].repeat(1, V)
    made.observe([Seen(seq=seq, start=1, num_committed=2, draft=fits, logits=logits, verdict=Verdict((3,), 8, True))])
    first, second = (drafter.told[0] for drafter in made.drafters)
    assert first.verdict == Verdict((), 5, False) and first.draft.tokens.tolist() == [9, 1, 2]
    assert second.verdict == Verdict((1,), 8, True) and second.draft.tokens.tolist() == [9, 5]
    assert [one.logits[:, 0].tolist() for one in (first, second)] == [[0, 1, 2], [0, 3]]
    assert temperature == 0 or len(second.draft.q) == 2
    others = Seen(seq=seq, start=3, num_committed=2, draft=chain([8, 1]), verdict=Verdict((1,), 4, True))
    made.observe([others])
    assert [drafter.told[1] for drafter in made.drafters] == [others, others], "the other drafter's guess, as it is"


def test_nodes_are_shared_out():
    made = MergeDrafter([Fixed(chain([9, 1])), Fixed(chain([9, 2])), Fixed(chain([9, 3]))], "abc")
    for nodes, shares in ((9, [3, 4, 7]), (2, [1, 1, 0]), (0, [0, 0, 0])):
        made.propose([sequence([7, 9])], [Budget(depth=4, nodes=nodes)])
        assert [drafter.budgets[-1].nodes for drafter in made.drafters] == shares


def test_lanes_draw_independently_except_under_the_coupled_rule():
    distribution = torch.full((64,), 1 / 64)
    for coupled in (False, True):
        seq = sequence([1, 2], seed=4, temperature=1.0, coupled=coupled)
        views = [in_lane(seq, lane) for lane in range(4)]
        drawn = [tuple(view.draft_coins(view).draw(distribution, 0, 0, 3)) for view in views]
        assert len(set(drawn)) == (1 if coupled else 4)
        assert all(view.tokens is seq.tokens for view in views)


def test_what_is_drawn_ahead_of_its_time_in_a_lane_has_coins_of_its_own():
    """The token at a place is drawn in an earlier round, dropped, and drawn again: from other noise."""
    distribution = torch.full((64,), 1 / 64)
    for coupled in (False, True):
        seq = sequence([1, 2], seed=4, temperature=1.0, coupled=coupled)
        for lane in range(3):
            early = imagine(in_lane(seq, lane), [3])
            late = in_lane(replace(seq, tokens=[1, 2, 3]), lane)
            drawn = [tuple(view.draft_coins(view).draw(distribution, 0, 0, 3)) for view in (early, late)]
            assert (drawn[0] == drawn[1]) == coupled


def test_two_draft_models_stay_in_step(tmp_path):
    save_model(DECODER, tmp_path / "a")
    save_model(small_decoder(seed=8), tmp_path / "b")
    options = [{"method": "draft_model", "model": str(tmp_path / name), "expansion": (2, 1)} for name in "ab"]
    alone = make("merge", Port, drafters=(options[0],))
    both = make("merge", Port, drafters=tuple(options))
    target = DecoderTarget(DECODER, 0.6)
    passes = [
        write([sequence([1, 2, i], max_tokens=25) for i in range(3)], target, made, k=2).tokens_per_pass
        for made in (alone, both)
    ]
    assert passes[1] >= passes[0] > 1
    assert all(drafter.model.is_empty for drafter in both.drafters)


def test_needs_are_everyones():
    made = MergeDrafter([Fixed(None, taps=(1, 2)), Fixed(None, taps=(0, 2), prompt_taps=(-1, 3))], "ab")
    assert made.needs == Needs(taps=(0, 1, 2), prompt_taps=(-1, 3))
    with pytest.raises(CapabilityError, match="'a' taps layer -1, and another one restarts the target behind layer 1"):
        MergeDrafter([Fixed(None, taps=(2, -1)), Fixed(None, resume_layer=1)], "ab")


def test_a_drafter_that_listens_to_prompts_drafts_when_merged():
    model = tiny_model(layers=4, vocab=31)
    with torch.inference_mode():
        made = make("merge", runner := Runner(model), drafters=({"method": "on_the_fly_skip", "threshold": 0.5},))
        run = write([sequence([1, 2, 3], max_tokens=12)], runner, made)
    assert sum(event.num_draft_tokens for event in run.events) > 0


def test_refusals():
    with pytest.raises(ConfigError, match="drafters"):
        make("merge", Port, drafters=())
    with pytest.raises(ConfigError, match="method"):
        make("merge", Port, drafters=({"model": "x"},))


@pytest.mark.parametrize("other", ["lookahead", "early_exit", {"method": "sam", "otherwise": "lookahead"}], ids=str)
def test_what_brings_more_than_tokens_is_refused_before_any_text(other):
    with pytest.raises(CapabilityError, match="cannot be merged: leave it out"):
        LLM("zoo:target", drafter={"name": "merge", "drafters": [other, "ngram"]})


def test_the_first_of_several_drafters_sees_the_sequence_itself():
    """So a drafter draws alike alone and among others."""
    seq = sequence([1, 2])
    assert in_lane(seq, 0) is seq and in_lane(seq, 1) is not seq
