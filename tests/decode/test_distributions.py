"""Rows of neighbours that are sampled alike are warped by one call, and each sequence has what it has alone."""

import pytest
import torch

from outdraft.core.packing import pack
from outdraft.decode import distributions
from outdraft.decode.distributions import target_distributions
from outdraft.options.errors import NumericsError
from tests.helpers.tables import drafts_from, one_sequence, random_table

VOCAB = 61
DRAFTER = random_table(VOCAB, 2, 2)
SETTINGS = [
    {"temperature": 0.8},
    {"temperature": 0.8},
    {"temperature": 0.8, "top_k": 5},
    {"temperature": 0.8, "top_k": 5},
    {"temperature": 1.0},
    {"temperature": 0.0},
    {"temperature": 0.8},
    {"temperature": 0.8, "typical_p": 0.5},
    {"temperature": 0.8, "logit_bias": {3: 2.0}},
    {"temperature": 0.8, "repetition_penalty": 1.5},
    {"temperature": 0.8},
    {"temperature": 1.3, "min_p": 0.1},
]


def passed(settings):
    seqs = [one_sequence([1, 2, 3 + i], id=i, seed=i, **one) for i, one in enumerate(settings)]
    shapes = [(-1, 0, 1), (-1,), (-1, 0, 0, 1)]
    drafts = [drafts_from(DRAFTER, shapes[i % 3])(seq.tokens, seq.draft_coins(seq)) for i, seq in enumerate(seqs)]
    packed = pack(seqs, drafts)
    return packed, torch.randn(len(packed.nodes), VOCAB, generator=torch.Generator().manual_seed(0)) * 3


@pytest.mark.parametrize("soft", [False, True])
def test_each_has_what_it_has_alone(soft):
    packed, logits = passed(SETTINGS)
    together = target_distributions(packed, logits, soft=soft)
    assert together.shape == logits.shape
    for i in range(len(packed.seqs)):
        alone = pack([packed.seqs[i]], [packed.drafts[i]])
        own = packed.node_slice(i)
        assert torch.equal(together[own], target_distributions(alone, logits[own], soft=soft)), SETTINGS[i]


def test_neighbours_that_are_alike_take_one_call(monkeypatch):
    packed, logits = passed([{"temperature": 0.8}] * 6)
    calls = []
    warp_rows = distributions.warp_rows
    monkeypatch.setattr(distributions, "warp_rows", lambda rows, warp: calls.append(len(rows)) or warp_rows(rows, warp))
    target_distributions(packed, logits)
    assert calls == [len(logits)]


def test_numbers_that_are_none_are_their_own_sequences():
    packed, logits = passed([{"temperature": 0.8}] * 3)
    logits[packed.node_starts[1]] = torch.nan
    with pytest.raises(NumericsError, match="sequence 1"):
        target_distributions(packed, logits)
