"""What a caller gets of a request's events, and results for callers that need all of them whole."""

import pytest
from drafters.drafting import sequence

from outdraft.core.events import Source, StepEvent
from outdraft.engine.callers.result import Result, all_whole
from outdraft.engine.callers.writer import Writer
from outdraft.engine.stats import RequestStats
from outdraft.options.errors import NumericsError


def test_an_error_from_outside_the_engine_leaves_what_was_written_its_variant():
    writer = Writer(sequence([1, 2]), None, None, lossless=True)
    writer.push(StepEvent(seq_id=0, tokens=(5,), sources=(Source.PLAIN,), variant="int4"))
    writer.push(StepEvent(seq_id=0, finish_reason="error", error=NumericsError("the thread broke")))
    assert writer.result().variant == "int4"


def result(text, error=None):
    return Result(
        text=text,
        token_ids=(),
        prompt_token_ids=(1,),
        sources=(),
        logprobs=None,
        finish_reason="length" if error is None else "error",
        error=error,
        variant="",
        lossless=True,
        stats=RequestStats(),
    )


def test_whole_results_are_handed_on_as_they_are():
    given = [result("a"), result("b")]
    assert all_whole(given) == given


def test_one_error_among_them_is_raised():
    with pytest.raises(NumericsError, match="first"):
        all_whole([result("a"), result("b", NumericsError("first")), result("c", NumericsError("second"))])
