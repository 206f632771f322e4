"""Settings of every test run: one thread, so that workers do not fight, and fixed randomness.

A request without a seed draws one from the system; here it draws it from dice that the test's name has thrown, so that
a test of a distribution gives the same p-value tomorrow. Hypothesis is fixed likewise. What engines remember of this
machine is neither read nor written.
"""

import gc
import logging
import os
import random
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
os.environ["OUTDRAFT_REMEMBER"] = "off"
settings.register_profile("outdraft", deadline=None, derandomize=True)
settings.load_profile("outdraft")


def pytest_collection_finish() -> None:
    """What was collected lives as long as the run: the garbage collector need not walk it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_fault_is_hidden(request: pytest.FixtureRequest) -> Iterator[None]:
    """A drafter that raises costs no text, so a test would not notice: what the engine logs of faults fails it.

    A test that plants faults says so: `pytest.mark.logs_faults`.
    """
    told: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    loggers = [logging.getLogger(f"outdraft.{name}") for name in ("control", "decode", "engine")]
    for logger in loggers:
        logger.addHandler(handler)
    yield
    for logger in loggers:
        logger.removeHandler(handler)
    if told and request.node.get_closest_marker("logs_faults") is None:
        pytest.fail(f"the engine met faults: {told}")


@pytest.fixture(autouse=True)
def fixed_seeds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seeds of requests that name none: always the same ones for one test, other ones for each."""
    monkeypatch.setattr("secrets.randbits", random.Random(request.node.nodeid).getrandbits)
