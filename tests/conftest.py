"""Settings of every test run: one thread, so that workers do not fight, and fixed randomness.

A request without a seed draws one from the system; here it draws it from dice that the test's name has thrown, so that
a test of a law gives the same p-value tomorrow. Hypothesis is fixed likewise.
"""

import random

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("outdraft", deadline=None, derandomize=True)
settings.load_profile("outdraft")


@pytest.fixture(autouse=True)
def fixed_seeds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seeds of requests that name none: always the same ones for one test, other ones for each."""
    monkeypatch.setattr("secrets.randbits", random.Random(request.node.nodeid).getrandbits)
