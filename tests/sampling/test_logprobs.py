"""What a record of log probabilities shows, by mode: softmax by hand, and logits that make the distribution."""

from dataclasses import replace

import pytest
import torch
from sampling.test_warp import make_sequence

from outdraft.sampling.logprobs import prompt_token_logprobs, token_logprobs
from outdraft.sampling.warp import processed_logits, warp_nodes

LOGITS = torch.randn(40, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 3
SETTINGS = {
    "greedy": {},
    "cold": {"temperature": 0.5},
    "cut": {"temperature": 0.8, "top_k": 9, "top_p": 0.9, "min_p": 0.01},
    "typical": {"temperature": 0.8, "typical_p": 0.7},
    "masked": {"temperature": 0.9, "allowed_token_ids": tuple(range(5, 30))},
    "edited": {"temperature": 1.5, "repetition_penalty": 1.4, "logit_bias": {3: 2.0, 5: -torch.inf}, "min_tokens": 9},
    "edited greedily": {"presence_penalty": 1.5, "logit_bias": {3: 2.0}},
}


def record(mode, token=7, n=4, **params):
    seq = make_sequence(output=(4, 9), logprobs=n, **params)
    seq.request = replace(seq.request, logprobs_mode=mode)
    distribution = warp_nodes(seq, LOGITS[None], [[]])[0]
    return token_logprobs(seq, token, LOGITS, distribution), distribution, seq


def best(values, n=4):
    found = values.topk(n)
    pairs = zip(found.indices.tolist(), found.values.tolist(), strict=True)
    return [pair for pair in pairs if pair[1] > -torch.inf]


@pytest.mark.parametrize("params", SETTINGS.values(), ids=SETTINGS)
def test_each_mode_shows_what_it_says(params):
    _, distribution, seq = record("raw_logprobs", **params)
    token = int(distribution.argmax())
    wanted = {
        "raw_logprobs": torch.log_softmax(LOGITS, -1),
        "processed_logprobs": torch.log(distribution),
        "raw_logits": LOGITS,
        "processed_logits": processed_logits(seq, LOGITS, distribution),
    }
    for mode, values in wanted.items():
        made = record(mode, token, **params)[0]
        assert made.logprob == pytest.approx(float(values[token]), abs=1e-12)
        assert [i for i, _ in made.top] == [i for i, _ in best(values)]
        assert [v for _, v in made.top] == pytest.approx([v for _, v in best(values)], abs=1e-12)
        assert made.raw == pytest.approx(float(wanted["raw_logprobs"][token]), abs=1e-12)
        assert made.warped == pytest.approx(float(wanted["processed_logprobs"][token]), abs=1e-12)
        assert [made.top_raw, made.top_warped][mode == "processed_logprobs"] == made.top or "logits" in mode


@pytest.mark.parametrize("params", SETTINGS.values(), ids=SETTINGS)
def test_processed_logits_make_the_distribution(params):
    _, distribution, seq = record("raw_logprobs", **params)
    made = processed_logits(seq, LOGITS, distribution)
    if seq.request.params.greedy:
        assert made.argmax() == distribution.argmax() and bool(made.isfinite().all())
        assert torch.equal(made, LOGITS) == (not seq.edits_logits)
    else:
        assert torch.allclose(torch.softmax(made, -1), distribution, atol=1e-12)
        assert torch.equal(made == -torch.inf, distribution == 0)


@pytest.mark.parametrize("mode", ["raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits"])
def test_a_prompt_has_raw_values_alone(mode):
    rows = torch.stack([LOGITS, LOGITS.flip(0)])
    values = torch.log_softmax(rows, -1) if mode.endswith("logprobs") else rows
    made = prompt_token_logprobs([7, 11], rows, 3, mode)
    assert [one.token for one in made] == [7, 11]
    for one, token, row, raw in zip(made, (7, 11), values, torch.log_softmax(rows, -1), strict=True):
        assert one.logprob == pytest.approx(float(row[token])) and one.top == tuple(best(row, 3))
        assert one.raw == one.warped == pytest.approx(float(raw[token])) and one.top_raw == one.top_warped


def test_forbidden_tokens_are_not_among_the_best():
    made = record("processed_logprobs", token=int(LOGITS.argmax()), n=40, temperature=1.0, top_k=3)[0]
    assert len(made.top) == len(made.top_warped) == 3 and len(made.top_raw) == 40
