"""Results for whoever needs all of them whole."""

import pytest

from outdraft.core.errors import NumericsError
from outdraft.engine.stats import RequestStats
from outdraft.engine.writer import Result, all_whole


def result(text, error=None):
    return Result(
        text=text, token_ids=(), prompt_token_ids=(1,), sources=(), logprobs=None,
        finish_reason="length" if error is None else "error", error=error, variant="", lossless=True,
        stats=RequestStats(),
    )  # fmt: skip


def test_whole_results_are_handed_on_as_they_are():
    given = [result("a"), result("b")]
    assert all_whole(given) == given


def test_one_error_among_them_is_raised():
    with pytest.raises(NumericsError, match="first"):
        all_whole([result("a"), result("b", NumericsError("first")), result("c", NumericsError("second"))])
