"""A guess of another place, or of rows that should be gone, is found for every kind by comparison with its learner."""

from dataclasses import replace

import pytest
from contracts import test_positions
from contracts.test_positions import target  # noqa: F401

from lab.guess_faults import FAULTS, planted
from outdraft.options.errors import CapabilityError

CASES = [(fault, kind) for fault in FAULTS for kind in fault.kinds]


@pytest.mark.parametrize(("fault", "kind"), CASES, ids=[f"{kind}-{fault.name}" for fault, kind in CASES])
def test_it_is_found(fault, kind, target, tmp_path):  # noqa: F811
    with planted(fault), pytest.raises((AssertionError, CapabilityError)):  # the cache refuses some
        test_positions.test_the_loop_guesses_what_the_learner_says(kind, target, tmp_path)


def test_a_line_that_is_not_there_is_said():
    with pytest.raises(ValueError, match="0 times, not once"), planted(replace(FAULTS[0], right="no such line")):
        pass
