"""Counters: tau counts the extra token, the acceptance rate is not accepted over drafted, positions are hazards; the
gain is estimated from measured passes or not said."""

from dataclasses import replace

import pytest

from outdraft import LLM, SamplingParams
from outdraft.core.events import StepEvent, StepTimes
from outdraft.engine.plain_pass import plain_pass
from outdraft.engine.stats import RequestStats


def event(drafted: int, accepted: int, emitted: int | None = None) -> StepEvent:
    emitted = accepted + 1 if emitted is None else emitted
    return StepEvent(
        seq_id=0,
        tokens=(1,) * emitted,
        num_draft_tokens=drafted,
        draft_depth=drafted,
        num_accepted=accepted,
        rejected=accepted < drafted,
        times=StepTimes(draft=1.0, target=2.0, rest=0.5),
    )


def test_counters_by_hand():
    stats = RequestStats()
    for e in (StepEvent(seq_id=0, num_certain=7), event(0, 0), event(3, 3), event(3, 1), event(3, 0)):
        stats.add(e)
    assert stats.num_steps == 4 and stats.num_prompt_steps == 1 and stats.num_tokens == 1 + 4 + 2 + 1
    assert stats.tau == 8 / 4
    assert stats.acceptance_rate == 4 / (4 + 2)
    assert stats.acceptance_by_position == pytest.approx([2 / 3, 1 / 2, 1.0])
    assert stats.first_rejection_histogram == [1, 1]
    assert stats.times == {"draft": 4.0, "target": 8.0, "rest": 2.0}


def test_tokens_that_a_mask_forced_are_no_guesses():
    stats = RequestStats()
    for e in (event(3, 1), replace(event(8, 8), drafted_by="forced")):
        stats.add(e)
    assert stats.acceptance_rate == 1 / 2 and stats.acceptance_by_position == [1.0, 0.0]
    assert stats.num_accepted_tokens == 9 and stats.num_tokens == 11


def test_metrics_have_the_names_that_tools_read():
    stats = RequestStats()
    for e in (event(2, 2), event(2, 0), event(2, 0)):
        stats.add(e)
    metrics = stats.as_metrics()["speculative_decoding"]
    assert metrics["mean_acceptance_length"] == 1 + 2 / 3
    assert metrics["draft_acceptance_rate"] == 2 / 6
    assert metrics["acceptance_histogram"] == [2, 0, 1]
    assert metrics["num_spec_steps"] == 3 and metrics["per_step_accepted"] == [2, 0, 0]


def test_nothing_drafted_is_not_a_division_by_zero():
    assert RequestStats().as_metrics()["speculative_decoding"]["draft_acceptance_rate"] == 0.0


@pytest.mark.parametrize("longest", [0, 1, 2, 3])
def test_the_histogram_reaches_to_the_longest_accepted_run(longest):
    stats = RequestStats()
    stats.add(event(4, longest))
    assert stats.as_metrics()["speculative_decoding"]["acceptance_histogram"] == [0] * longest + [1]


def test_costs_are_kept_by_rows_without_passes_that_read_the_prompt():
    stats, times = RequestStats(), StepTimes(draft=1.0, target=2.0, rest=0.5)
    for certain, rows, emitted in ((7, 1, 1), (0, 1, 1), (0, 4, 3), (0, 4, 1), (0, 4, 0)):
        stats.add(
            StepEvent(
                seq_id=0,
                tokens=(1,) * emitted,
                num_certain=certain,
                num_nodes=rows,
                num_draft_tokens=rows - 1,
                times=times,
            )
        )
    assert stats.as_metrics()["speculative_decoding"]["passes_by_rows"] == [
        {"rows": 1, "num_passes": 1, "num_tokens": 1, "draft_seconds": 1.0, "target_seconds": 2.0, "rest_seconds": 0.5},
        {"rows": 4, "num_passes": 2, "num_tokens": 4, "draft_seconds": 2.0, "target_seconds": 4.0, "rest_seconds": 1.0},
    ]


def counted(*rounds: tuple[int, int, float], num_texts: int = 1) -> RequestStats:
    """(rows, tokens, seconds of the target) for each pass."""
    stats = RequestStats()
    for rows, tokens, seconds in rounds:
        stats.add(
            StepEvent(
                seq_id=0,
                tokens=(1,) * tokens,
                num_nodes=rows,
                num_draft_tokens=rows - 1,
                drafted_by="ngram" if rows > 1 else "",
                num_accepted=tokens - 1,
                rejected=tokens < rows,
                times=StepTimes(draft=0.5 * (rows > 1), target=seconds, num_texts=num_texts),
            )
        )
    return stats


def test_the_gain_is_that_of_passes_of_one_row():
    stats = counted((1, 1, 2.0), (4, 4, 2.0), (4, 2, 2.0))
    assert stats.estimated_speedup == pytest.approx(2.0 * 7 / (2.0 + 2.5 + 2.5))
    stats.plain_pass = 2.2  # the policy has measured more of them
    assert stats.estimated_speedup == pytest.approx(2.2 * 7 / 7.0)
    many = counted(*[(1, 1, 2.0)] * 8, (4, 4, 2.0))
    many.plain_pass = 1.0  # in quieter times
    assert many.estimated_speedup == pytest.approx(2.0 * 12 / 18.5)
    assert str(stats) == (
        "7 tokens in 3 passes (2.33 a pass), 7.00 s, 1 tokens/s; 80% of examined guesses accepted; "
        "drafted by ngram in 2; about 2.2x plain (estimated from measured pass costs)"
    )
    assert stats.brief == "7 tokens, 2.33 a pass, 1 tokens/s, about 2.2x plain (estimated)"
    stats.plain_pass = 9.0  # a hiccup: a pass with a draft does all the work of one without
    assert stats.estimated_speedup == pytest.approx(stats.tau)


def test_no_gain_is_said_where_none_was_measured():
    drafted = counted((4, 4, 2.0))
    assert drafted.estimated_speedup is None and "plain" not in str(drafted) + drafted.brief
    drafted.plain_pass = 1.0
    assert drafted.estimated_speedup == pytest.approx(4 / 2.5)
    assert counted((1, 1, 2.0)).estimated_speedup is None, "nothing was drafted"
    assert counted((1, 1, 2.0), (4, 4, 2.0), num_texts=2).estimated_speedup is None, "what a text adds is not known"
    assert str(RequestStats()) == "0 tokens in 0 passes (0.00 a pass)"


def test_the_policy_has_measured_it():
    params = SamplingParams(max_tokens=48, ignore_eos=True)
    with LLM("zoo:target") as llm:
        assert plain_pass(llm.engine) is None, "nothing has run"
        stats = llm.generate("It was late when", params).stats
        assert stats.plain_pass is not None and 0 < stats.plain_pass < stats.seconds
        assert stats.estimated_speedup is not None and 0 < stats.estimated_speedup <= stats.tau + 1
        assert repr(llm).startswith("LLM('target', drafter='ngram+") and "\n" not in repr(llm)
        pair = llm.generate(["It was late when", "Once upon a time"], params)
        assert [one.stats.estimated_speedup for one in pair] == [None, None]
        assert repr(pair[0]).endswith("48 tokens, finish_reason='length')") and len(repr(pair[0])) < 140
    with LLM("zoo:target", drafter="ngram", num_speculative_tokens=2) as llm:
        assert llm.generate("It was late when", params).stats.plain_pass is None, "a fixed length measures nothing"
        assert plain_pass(llm.engine) is None
