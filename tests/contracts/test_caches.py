"""Every drafter over every kind of target cache: greedy and seeded text is that of plain decoding over the same cache.

A paged cache writes what a static one writes; a cache of bytes has a distribution of its own, which drafting must not
change.
"""

import pytest
import torch
from contracts.spec_rows import ROWS, quick

from outdraft.cache.config import CacheConfig
from outdraft.core.request import Request
from outdraft.options.params import SamplingParams
from outdraft.testing.subject import Subject, run
from outdraft.verify.auto import Auto

PROMPTS = ((5, 6, 7, 8) * 5, (1, 2, 3), tuple(range(40)))
SETTINGS = (
    SamplingParams(max_tokens=16, logprobs=1),
    SamplingParams(max_tokens=16, logprobs=1, temperature=1.0, seed=7),
)
STATIC, PAGED = CacheConfig(), CacheConfig(layout="paged")
INT8, PAGED_INT8 = CacheConfig(dtype="int8"), CacheConfig(layout="paged", dtype="int8")


def marks(i, row):
    """Every other drafter is asked where slow tests run."""
    return (pytest.mark.slow,) if i % 2 else quick(row)


@pytest.fixture(
    scope="module", params=[pytest.param(row, id=row.name, marks=marks(i, row)) for i, row in enumerate(ROWS)]
)
def subject(request, tmp_path_factory) -> Subject:
    return Subject(request.param, tmp_path_factory.mktemp("side"), dtype=torch.float32)


def write(subject: Subject, cache: CacheConfig, **per_request) -> tuple[list[list[int]], list[object]]:
    """Texts of all prompts in one batch, and the bits of their log probabilities."""
    requests = [Request(prompt_token_ids=p, params=params, **per_request) for params in SETTINGS for p in PROMPTS]
    outcomes = run(subject.engine(cache=cache, depth=5, verifier=Auto()), requests)
    bits = [[entry for event in outcome.events for entry in event.logprobs] for outcome in outcomes]
    return [outcome.seq.output for outcome in outcomes], bits


KINDS = [(STATIC, PAGED), (INT8, PAGED_INT8)]  # drafters take them in turn
PLAIN = {}  # what a target writes undrafted over a cache, asked of the first drafter


def test_drafting_changes_nothing(subject):
    cache, paged = KINDS[ROWS.index(subject.row) // 2 % 2]
    key = (subject.row.target, cache)
    plain = PLAIN[key] = PLAIN.get(key) or write(subject, cache, num_speculative_tokens=0)
    assert plain == write(subject, cache), cache
    assert plain[0] == write(subject, paged)[0], paged


def test_bytes_have_another_distribution(tmp_path):
    subject = Subject(ROWS[1], tmp_path, dtype=torch.float32)
    static, int8 = (write(subject, cache, num_speculative_tokens=0)[1] for cache in (STATIC, INT8))
    assert static != int8


@pytest.mark.parametrize("row", [ROWS[1], ROWS[-1]], ids=lambda row: row.name)
def test_a_paged_cache_holds_what_a_fresh_pass_leaves_and_gives_all_of_it_back(row, tmp_path):
    engine = Subject(row, tmp_path).engine(cache=PAGED, recheck=True)  # raises after the first wrong commit
    run(engine, [Request(prompt_token_ids=prompt, params=SETTINGS[0]) for prompt in PROMPTS])
    cache = engine.parts.target.target.cache
    assert cache.num_free == cache.pool()[0].shape[1] > 0
