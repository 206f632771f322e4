"""A pass in which some drafts go on at a layer and others begin at the embeddings: each has its own text."""

import pytest
import torch
from drafters.drafting import sequence

from outdraft.core.draft import Resume, chain
from outdraft.core.packing import pack
from outdraft.core.request import Request
from outdraft.engine.runner import Runner
from outdraft.options.errors import CapabilityError
from outdraft.options.params import SamplingParams
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject, run
from outdraft.testing.tiny import tiny_model

PROMPTS = [(5, 3, 9, 5, 3, 9), (7, 1), (9, 9, 4, 1, 30), (2, 6, 2)]


@pytest.mark.parametrize("drafting", [(1,), (0, 2), (1, 2, 3), ()])
def test_who_drafts_and_who_does_not_share_a_pass(drafting, tmp_path):
    subject = Subject(DrafterRow(drafter="early_exit", options={"exit_layer": 1}), tmp_path)
    requests = [
        Request(
            prompt_token_ids=prompt,
            params=SamplingParams(max_tokens=10),
            num_speculative_tokens=3 if i in drafting else 0,
        )
        for i, prompt in enumerate(PROMPTS)
    ]
    for i, (outcome, request) in enumerate(zip(run(subject.engine(recheck=True), requests), requests, strict=True)):
        assert outcome.seq.output == subject.oracle(request)
        assert (outcome.stats.num_draft_tokens > 0) == (i in drafting)


def resuming(layer):
    return chain([9], resume=Resume(layer=layer, hidden=torch.zeros(1, 32, dtype=torch.float64)))


@pytest.mark.parametrize(("layers", "unread"), [((1, 2), 0), ((2, 1), 0), ((1, 1), 2)])
def test_drafts_that_cannot_go_on_together_are_refused(layers, unread):
    """At two layers, or behind prompt rows that no layer has seen."""
    runner = Runner(tiny_model(layers=3))
    seqs = [sequence([4, 5, 9]) for _ in layers]
    for seq, seen in zip(seqs, (2, 2 - unread), strict=True):
        runner.begin(seq)
        runner.cache.reserve(seq.id, seen)
        runner.cache.commit(seq.id, range(seen))
        seq.num_cached = seen
    with pytest.raises(CapabilityError, match="resume at different layers"):
        runner.forward(pack(seqs, [resuming(layer) for layer in layers]))
