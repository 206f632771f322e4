"""The model of a sparse cache: no gain where the draft sees everything, one break-even, more gain in larger batches."""

import itertools
import random
from dataclasses import replace
from math import inf

import pytest

from lab.analysis.long_context import SparseDraft, context_sheet
from outdraft.analysis.theory import expected_tokens

MEMORY = SparseDraft(peak_flops=1e30)  # nothing but bytes


def test_a_pass_by_hand():
    """100 bytes of weights, 2 a cached token, at 10 a second; 3 sequences, 40 operations a row at 20 a second."""
    small = SparseDraft(weight_bytes=100, kv_bytes=2, row_flops=40, bandwidth=10, peak_flops=20, batch=3, budget=5)
    assert small.pass_seconds(1, 7) == 10 + 3 * 7 * 2 / 10  # reading takes 10 s, computing 6
    assert small.pass_seconds(4, 7) == 3 * 4 * 40 / 20 + 3 * 7 * 2 / 10
    gained, plain = expected_tokens(0.8, 3), small.pass_seconds(1, 7)
    assert small.speedup(3, 7) == pytest.approx(gained * plain / (3 * small.pass_seconds(1, 5) + 24 + 4.2))


@pytest.mark.parametrize("batch", [1, 16, 256])
def test_a_draft_that_sees_everything_is_right_and_never_pays(batch):
    for context in (1, 64, 511, 512):
        one = SparseDraft(batch=batch, alpha=0.5)
        assert one.acceptance(context) == 1.0 and one.best(context) == (0, 1.0)
        for k in range(1, 20):
            assert one.speedup(k, context) <= 1 + 1e-12
        assert replace(MEMORY, batch=batch).speedup(4, context) == pytest.approx(1)  # k + 1 passes for k + 1 tokens
    assert SparseDraft(alpha=0.5).acceptance(513) == 0.5


def test_break_even_is_where_the_best_speed_up_leaves_one():
    dice = random.Random(0)
    for _ in range(200):
        one = SparseDraft(
            weight_bytes=10 ** dice.uniform(8, 11),
            row_flops=10 ** dice.uniform(8, 11),
            alpha=dice.uniform(0.05, 1),
            kv_bytes=10 ** dice.uniform(4, 6),
            batch=dice.randrange(1, 300),
            budget=dice.randrange(16, 4096),
        )
        length = one.break_even()
        assert length > one.budget * (1 - 1e-9)
        assert one.best(length * 0.999)[1] == 1.0 < one.best(length * 1.001)[1]
        gains = [one.best(length * factor)[1] for factor in (1.001, 1.5, 3, 10, 100)]
        assert gains == sorted(gains)
    assert SparseDraft(alpha=0.0).break_even() == inf


def test_speed_up_grows_with_the_batch_beyond_the_break_even():
    """Always where memory is the limit; where rows of the check cost arithmetic, for contexts well beyond it."""
    batches = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    for draft, context in ((MEMORY, 800), (MEMORY, 40_000), (SparseDraft(), 8192), (SparseDraft(), 100_000)):
        gains = [replace(draft, batch=batch).best(context)[1] for batch in batches]
        assert gains == sorted(gains) and gains[-1] > 1.02 * gains[0], (context, gains)
    begins = [replace(MEMORY, batch=batch).break_even() for batch in batches]
    assert begins == sorted(begins, reverse=True) and begins[0] > 20 * begins[-1]


def test_the_best_length_grows_with_context_and_batch():
    lengths = {(b, n): SparseDraft(batch=b).best(n)[0] for b, n in itertools.product((8, 64), (4096, 32_768, 131_072))}
    assert lengths[8, 4096] < lengths[8, 32_768] < lengths[8, 131_072]
    assert all(lengths[8, n] < lengths[64, n] for n in (4096, 32_768, 131_072))


def test_in_the_limit_drafting_is_free():
    one = SparseDraft(batch=64)
    assert one.speedup(5, 1e12) == pytest.approx(expected_tokens(0.8, 5), rel=1e-3)


def test_the_table():
    sheet = context_sheet(SparseDraft(alpha=0.0), (1, 8), (1024, 4096))
    assert sheet.columns == ["context", "batch 1", "batch 8"]
    assert sheet.rows[0] == ["1024", "0 -> 1.00x", "0 -> 1.00x"] and sheet.rows[-1] == [
        "gains beyond",
        "never",
        "never",
    ]
    assert context_sheet(SparseDraft(), (64,), (32_768,)).rows[0][1] == "6 -> 2.73x"
