"""Counters: tau counts the extra token, the acceptance rate is not accepted over drafted, positions are hazards."""

from dataclasses import replace

import pytest

from outdraft.core.events import StepEvent, StepTimes
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
