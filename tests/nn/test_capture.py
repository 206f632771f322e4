"""Recordings: once a kind, replayed on new contents; a failure is a reason and not an error."""

import pytest
import torch
from recording import record_by_tracing

from outdraft.nn.capture import Recordings, call_each_time


@pytest.mark.parametrize("record", [call_each_time, record_by_tracing])
def test_a_recording_reads_what_its_tensors_hold_by_then(record):
    place, recordings = torch.zeros(3), Recordings(record)
    for value in (1.0, 2.0):
        place.fill_(value)
        assert recordings.run("double", lambda: place * 2).tolist() == [2 * value] * 3
    assert len(recordings) == 1


def test_the_function_is_not_run_again():
    calls = []
    recordings = Recordings(record_by_tracing)
    for _ in range(3):
        recordings.run("kind", lambda: calls.append(1) or torch.ones(1))
    assert len(calls) == 1


def test_a_failed_recording_leaves_a_reason_and_the_result():
    def refuse(function):
        raise RuntimeError("operation not permitted when stream is capturing\nmore lines")

    recordings = Recordings(refuse)
    assert recordings.run("one", lambda: 5) == 5 and recordings.run("two", lambda: 6) == 6
    assert recordings.reason == "not recorded, RuntimeError: operation not permitted when stream is capturing"


def test_asking_the_device_cannot_be_recorded():
    """The emulation refuses what a CUDA graph refuses, so a hidden wait in a pass would fail the tests."""
    place = torch.ones(3)
    recordings = Recordings(record_by_tracing)
    recordings.run("asks", lambda: torch.ones(int(place.sum().item())))
    assert recordings.reason is not None
