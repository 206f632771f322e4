"""The guard's bound: asked for, by type, or none where rows do not depend on the pass. (The replay: tests/decode.)"""

import pytest
import torch

from outdraft.core.errors import ConfigError
from outdraft.models.guard_bound import find_bound
from outdraft.testing.tiny import tiny_model


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-3), (torch.bfloat16, 0.0), (torch.float64, 0.0)])
def test_the_default_goes_by_type(dtype, bound):
    assert find_bound(tiny_model(dtype=dtype, exact=False), None) == bound


def test_what_is_asked_for_holds_unless_rows_are_exact():
    assert find_bound(tiny_model(exact=False), 0.25) == 0.25
    assert find_bound(tiny_model(dtype=torch.float32, exact=False), 0.0) == 0.0
    assert find_bound(tiny_model(exact=True), 0.25) == 0.0


@pytest.mark.parametrize("asked", [-0.1, float("nan"), float("inf")])
def test_a_bound_is_a_distance(asked):
    with pytest.raises(ConfigError, match="guard="):
        find_bound(tiny_model(), asked)
