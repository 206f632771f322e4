"""The draft model's recorded chains: the same guesses as step by step, whatever the text did in between."""

from pathlib import Path

import pytest
import torch
from contracts.sides import twin
from drafters.drafting import sequence
from drafters.test_draft_model import small_decoder
from recording import record_by_tracing

from outdraft.cache.config import CacheConfig
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.drafters.draft_model.static import StaticDraftModel
from outdraft.engine.graphed import GraphedRunner
from outdraft.nn.capture import call_each_time
from outdraft.options.params import SamplingParams
from outdraft.testing.contract.ground import PROMPTS
from outdraft.testing.reference_rule import ConstantPolicy
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Outcome, Subject, run

ROW = DrafterRow(drafter="draft_model", label="twin", side=twin)


class Static(Subject):
    def make_runner(self, max_len: int | None, cache: CacheConfig) -> GraphedRunner:
        self.decoder.set_exact(False)
        return GraphedRunner(self.decoder, record=record_by_tracing, max_len=max_len, cache=cache)


class Called(Subject):
    def make_runner(self, max_len: int | None, cache: CacheConfig) -> GraphedRunner:
        self.decoder.set_exact(False)
        return GraphedRunner(self.decoder, record=call_each_time, max_len=max_len, cache=cache)


def counts(outcomes: list[Outcome]) -> list[tuple[int, int, list[int]]]:
    return [(o.stats.num_draft_tokens, o.stats.num_accepted_tokens, o.seq.output) for o in outcomes]


def batch(max_tokens: int = 24) -> list[Request]:
    return [Request(prompt_token_ids=p, params=SamplingParams(max_tokens=max_tokens)) for p in PROMPTS]


@pytest.fixture(scope="module")
def side(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("side")


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_the_same_guesses_as_step_by_step(side, depth):
    usual, static = Subject(ROW, side), Called(ROW, side)
    engine = static.engine(depth=depth)
    assert isinstance(engine.parts.drafter.model, StaticDraftModel)
    wanted, found = counts(run(usual.engine(depth=depth), batch())), counts(run(engine, batch()))
    assert found == wanted and sum(accepted for _, accepted, _ in found) > 10
    assert engine.parts.drafter.model.is_empty


class Uneven(ConstantPolicy):
    """Rounds without a guess between those with one: what was guessed before them must not be taken for text."""

    def plan(self, seqs):
        return [Budget(depth=(4, 0, 3)[len(seq.tokens) % 3]) for seq in seqs]


def test_rounds_without_a_guess_in_between(side):
    policy = Uneven(Budget(depth=0))
    usual, static = Subject(ROW, side), Called(ROW, side)
    found = counts(run(static.engine(policy=policy), batch(40)))
    assert found == counts(run(usual.engine(policy=policy), batch(40)))


def test_recorded_chains_are_the_called_ones(side):
    called, static = Called(ROW, side), Static(ROW, side)
    engine = static.engine(depth=3)
    assert counts(run(engine, batch(14)[:3])) == counts(run(called.engine(depth=3), batch(14)[:3]))
    recordings = engine.parts.drafter.model.static.recordings
    assert recordings.reason is None and len(recordings) > 0


def test_sampled_requests_and_greedy_ones_share_a_batch(side):
    """A batch that cannot be drafted on the device is drafted step by step, over the same memory."""
    static, usual = Called(ROW, side), Subject(ROW, side)
    mixed = [
        Request(prompt_token_ids=p, params=SamplingParams(max_tokens=16 + i, temperature=float(i % 2), seed=4))
        for i, p in enumerate(PROMPTS)
    ]
    assert counts(run(static.engine(), mixed)) == counts(run(usual.engine(), mixed))


def test_nothing_is_confirmed_that_the_target_did_not_accept(side):
    static = Called(ROW, side)
    engine = static.engine(depth=4)
    seq = engine.add(batch(80)[2])
    model = engine.parts.drafter.model
    while not seq.num_output:
        engine.step()
    for _ in range(6):
        engine.step()
        known = [fed for fed in model._texts[seq.id].guess if fed[1] >= 0]
        assert [token for _, token in known] == seq.tokens[len(model.cached_ids(seq.id)) :][: len(known)]
        assert torch.equal(
            torch.tensor(model.cached_ids(seq.id)), torch.tensor(seq.tokens[: len(model.cached_ids(seq.id))])
        )


@pytest.mark.parametrize("num_accepted", [0, 2, 3])
def test_rows_of_accepted_guesses_are_kept(num_accepted):
    """Given how many came true, the model reads only what is new: the rule's own token and what has no row yet."""
    decoder = small_decoder()
    decoder.set_exact(False)
    model, seq = StaticDraftModel(decoder, call_each_time), sequence([1, 2, 3])
    model.add(seq.id)
    found = model.chain_network([seq]).record([0], [4])[1:, 0].tolist()  # the last of the four has no row
    seq.tokens += [*found[:num_accepted], 22]
    model.confirm(seq, num_accepted)
    assert model._unread([seq]) == [[22]] and model.cached_ids(seq.id) == seq.tokens[:-1]
