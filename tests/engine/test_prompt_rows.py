"""Prompts that are not only text: rows that bring their own vectors, and positions that are not the tokens' indices.

An image's rows are both. A decoder of text tests the seams: vectors that are the embeddings of other tokens must give
the other tokens' text, and positions are compared with one full pass that is given them.
"""

from dataclasses import replace

import pytest
import torch
from contracts.spec_rows import ROWS

from outdraft.core.request import Request
from outdraft.nn.context import CausalContext
from outdraft.options.errors import RequestError
from outdraft.options.params import SamplingParams
from outdraft.testing.subject import Subject, run

PROMPT = (7, 3, 9, 9, 1, 7, 3, 9, 4, 1)
PLACES = (0, 1, 2, 2, 2, 2, 2, 5, 6, 9)  # as an image's rows stand: many at one position, then a jump
OTHERS = (7, 3, 22, 23, 24, 25, 26, 9, 4, 1)  # what the vectors of the image say
DRAFTERS = ("none", "ngram", "draft_model", "early_exit", "draft_verify", "lookahead", "eagle", "magicdec", "triforce")
SUBJECTS = [next(row for row in ROWS if row.drafter == name) for name in DRAFTERS]


@pytest.fixture(params=SUBJECTS, ids=lambda row: row.drafter)
def subject(request, tmp_path):
    return Subject(request.param, tmp_path)


def written(subject, request):
    """What an engine with this drafter writes."""
    return run(subject.engine(), [request])[0].seq.output


def oracle(subject, request, count):
    """Greedy text, one full pass a token, with the prompt's own positions and vectors."""
    tokens = list(request.prompt_token_ids)
    places = list(request.prompt_positions or range(len(tokens)))
    while len(tokens) < len(PROMPT) + count:
        ids, at = torch.tensor(tokens), torch.tensor(places)
        with torch.inference_mode():
            h = subject.decoder.embed(ids, at)
            if request.prompt_embeds is not None:
                own = ~request.prompt_embeds.isnan()
                h[: len(PROMPT)][own] = request.prompt_embeds[own]
            h = subject.decoder.run(h, at, CausalContext(1, len(tokens))).hidden
            tokens.append(int(subject.decoder.logits(h[-1:])[0].argmax()))
        places.append(max(places[: len(PROMPT)]) + 1 + len(tokens) - 1 - len(PROMPT))
    return tokens[len(PROMPT) :]


def test_positions_are_the_prompts_own(subject):
    request = Request(prompt_token_ids=PROMPT, prompt_positions=PLACES, params=SamplingParams(max_tokens=12))
    assert written(subject, request) == oracle(subject, request, 12)
    assert written(subject, request) != written(subject, replace(request, prompt_positions=None))


def test_rows_of_the_prompt_bring_their_own_vectors(subject):
    vectors = torch.full((len(PROMPT), subject.decoder.config.hidden_size), torch.nan, dtype=torch.float64)
    vectors[2:7] = subject.decoder.embed(torch.tensor(OTHERS[2:7]), torch.arange(2, 7))
    params = SamplingParams(max_tokens=12)
    request = Request(prompt_token_ids=PROMPT, prompt_embeds=vectors, params=params)
    assert written(subject, request) == oracle(subject, Request(prompt_token_ids=OTHERS, params=params), 12)
    both = replace(request, prompt_positions=PLACES)
    assert written(subject, both) == oracle(subject, both, 12)


def test_the_pending_token_may_be_a_vector_too(subject):
    vectors = subject.decoder.embed(torch.tensor(OTHERS), torch.arange(len(OTHERS)))
    params = SamplingParams(max_tokens=8)
    request = Request(prompt_token_ids=(0,) * len(PROMPT), prompt_embeds=vectors, params=params)
    assert written(subject, request) == oracle(subject, Request(prompt_token_ids=OTHERS, params=params), 8)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"prompt_positions": (0, 1)}, "one for each token"),
        ({"prompt_positions": (-1, *range(9))}, "from 0 on"),
        ({"prompt_positions": (*range(1, 10), 0)}, "the last one the largest"),
        ({"prompt_positions": (*range(9), 10**9)}, f"end at {10**9}, the context holds"),
        ({"prompt_embeds": torch.zeros(3, 32)}, "one vector of width 32"),
        ({"prompt_embeds": torch.zeros(11, 32)}, "one vector of width 32"),
        ({"prompt_embeds": torch.zeros(10, 31)}, "one vector of width 32"),
        ({"prompt_embeds": torch.zeros(10, 33)}, "one vector of width 32"),
    ],
)
def test_wrong_shapes_are_named(tmp_path, wrong, named):
    subject = Subject(SUBJECTS[0], tmp_path)
    with pytest.raises(RequestError, match=named):
        run(subject.engine(), [Request(prompt_token_ids=PROMPT, **wrong)])


def test_the_context_ends_where_positions_do(tmp_path):
    engine = Subject(SUBJECTS[0], tmp_path).engine(max_len=40)
    late = Request(prompt_token_ids=PROMPT, prompt_positions=(*range(9), 35), params=SamplingParams(max_tokens=99))
    [outcome] = run(engine, [late])
    assert (outcome.seq.finish_reason, len(outcome.seq.output)) == ("length", 4)


@pytest.mark.parametrize("place", [0, 6])
def test_a_prompt_of_one_token_may_have_a_position_too(tmp_path, place):
    request = Request(prompt_token_ids=(7,), prompt_positions=(place,), params=SamplingParams(max_tokens=3))
    [outcome] = run(Subject(SUBJECTS[0], tmp_path).engine(), [request])
    assert (outcome.seq.finish_reason, len(outcome.seq.output)) == ("length", 3)
