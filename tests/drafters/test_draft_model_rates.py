"""Speculative sampling by the book: acceptance is the overlap of the two distributions, tokens a pass are the
formula's."""

import math

import pytest
import torch
from drafters.drafting import sequence, write

from outdraft.drafters.draft_model import DraftModelDrafter, DraftModelOptions
from outdraft.drafters.shared.chains.network import ChainNetwork
from outdraft.drafters.shared.networks.own_model import DraftModel
from outdraft.testing.accept_all import METHOD as ACCEPT_ALL
from outdraft.testing.tiny import tiny_model
from outdraft.verify.rejection import METHOD as REJECTION
from tests.helpers.table_target import TableTarget

V = 8
TARGET = TableTarget(vocab_size=V, order=0, sharpness=1.0, seed=1)  # ignores the past: acceptance is i.i.d.


class TableModel(DraftModel):
    """A draft model that ignores the past, too."""

    runs_chains = False

    def __init__(self, logits):
        self.logits = logits
        self.decoder = tiny_model(vocab=V)  # whose weights are given and never used

    def add(self, seq): ...

    def free(self, seq): ...

    def room(self, tokens):
        return 4096

    def chain_network(self, texts):
        return ChainNetwork(feed=lambda step, rows, tokens, num_open: self.logits.repeat(num_open, 1))


def deviations(sharpness, k, rule):
    """Acceptance and tokens a pass against the formulas, in standard errors."""
    logits = TARGET.table + sharpness * torch.randn(V, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    made = DraftModelDrafter(DraftModelOptions(), TableModel(logits))
    p, q = torch.softmax(TARGET.table, -1), torch.softmax(logits, -1)
    alpha = float(torch.minimum(p, q).sum())
    seqs = [sequence([1, 2], seed=seed, temperature=1.0, max_tokens=120) for seed in range(10)]
    run = write(seqs, TARGET, made, k=k, rule=rule.build(None))
    rounds = [e for e in run.events if e.draft_depth == k and e.finish_reason is None]
    accepted, rejected = sum(e.num_accepted for e in rounds), sum(e.rejected for e in rounds)
    examined = accepted + rejected
    mean = (1 - alpha ** (k + 1)) / (1 - alpha)
    square = sum((n + 1) ** 2 * alpha**n * ((1 - alpha) if n < k else 1) for n in range(k + 1))
    found = sum(len(e.tokens) for e in rounds) / len(rounds)
    return (
        abs(accepted / examined - alpha) / math.sqrt(alpha * (1 - alpha) / examined),
        abs(found - mean) / math.sqrt((square - mean**2) / len(rounds)),
    )


@pytest.mark.parametrize("sharpness", [0.3, 1.0])
@pytest.mark.parametrize("k", [1, 4])
def test_acceptance_and_tokens_a_pass(sharpness, k):
    assert max(deviations(sharpness, k, REJECTION)) < 3


def test_a_rule_that_accepts_too_much_is_noticed():
    assert min(deviations(0.3, 4, ACCEPT_ALL)) > 5
