"""Chains that the kernels write in one call are those that they write token by token."""

from dataclasses import replace

import pytest
import torch
from contracts.native_rows import ROWS
from contracts.test_native_drafters import PROMPTS, NativeSubject, first_guesses

from outdraft.core.policy import Budget
from outdraft.drafters import draft_model, early_exit
from outdraft.drafters.shared.chains.grow import grow_chains
from outdraft.drafters.shared.features import drafter as features
from outdraft.drafters.shared.own_layers import own_chain
from outdraft.kernels.library import library
from outdraft.models.networks.port import TargetRows
from outdraft.options.params import SamplingParams

pytestmark = pytest.mark.skipif(library() is None, reason="the native kernels are not built")
PLACES = (draft_model, features, early_exit, own_chain)
OTHERS = ("p_eagle", "dflash", "dflash2", "dspark", "kangaroo")  # one pass makes all; a call makes a token at most
CHAINS = [row for row in ROWS if "tree" not in row.label and row.drafter not in OTHERS]


@pytest.fixture(scope="module", params=CHAINS, ids=lambda row: row.name)
def subject(request, tmp_path_factory):
    return NativeSubject(request.param, tmp_path_factory.mktemp("side"))


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=0.8)], ids=["greedy", "sampled"])
def test_one_call_writes_what_steps_write(subject, params, monkeypatch):
    called = []

    def grow(seqs, depths, network, *rest, steps, **more):
        chain = network.chain
        assert chain is not None
        counted = None if steps else lambda *given: called.append(steps) or chain(*given)
        return grow_chains(seqs, depths, replace(network, chain=counted), *rest, **more)

    drafts = {}
    for steps in (True, False):
        for place in PLACES:
            monkeypatch.setattr(
                place, "grow_chains", lambda *given, steps=steps, **more: grow(*given, steps=steps, **more)
            )
        drafts[steps] = first_guesses(subject, PROMPTS, params, budget=Budget(depth=4))
    assert called == [False]
    for one, other in zip(drafts[True], drafts[False], strict=True):
        assert one.num_nodes == 5 and torch.equal(one.tokens, other.tokens)
        assert (one.q is None) == (other.q is None) and (one.resume is None) == (other.resume is None)
        if one.q is not None:
            torch.testing.assert_close(one.q, other.q, atol=1e-5, rtol=0)
        if one.resume is not None:
            torch.testing.assert_close(one.resume.hidden, other.resume.hidden, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize(
    "row", [row for row in CHAINS if row.drafter in ("early_exit", "draft_verify")], ids=lambda row: row.name
)
def test_room_for_all_rows_of_a_chain_is_taken_before_it_is_written(row, tmp_path, monkeypatch):
    """A row for each token that is fed; the early exit feeds the last one, too."""
    tentative, asked = TargetRows.tentative, []

    def watched(self, seqs, offset, rooms):
        asked.append((offset, list(rooms)))
        return tentative(self, seqs, offset, rooms)

    monkeypatch.setattr(TargetRows, "tentative", watched)
    first_guesses(NativeSubject(row, tmp_path), PROMPTS, SamplingParams(), budget=Budget(depth=4))
    assert asked == [(0, [4 + (row.drafter == "early_exit")] * len(PROMPTS))]
