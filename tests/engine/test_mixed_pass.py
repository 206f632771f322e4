"""A pass in which some drafts go on at a layer and others begin at the embeddings: each has its own text."""

import pytest

from outdraft.core.params import SamplingParams
from outdraft.core.request import Request
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject, run

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
