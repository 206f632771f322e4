"""Limits are in the range, NaN is not, None is left alone; the error says what, how much and what it must be."""

from types import SimpleNamespace

import pytest

from outdraft.options.errors import ConfigError
from outdraft.options.ranges import MOST_BYTES, check_range


def test_what_is_within_passes():
    check_range(SimpleNamespace(a=0, b=1.0, c=None), "a", "b", "c", least=0, most=1)
    check_range(SimpleNamespace(a=float("inf")), "a", least=0)
    check_range(SimpleNamespace(a=6_000_000_000), "a", least=0, most=MOST_BYTES)


@pytest.mark.parametrize(
    ("value", "limits", "said"),
    [
        (-1, {"least": 0}, "b=-1: must be at least 0$"),
        (1.5, {"least": 0, "most": 1}, "b=1.5: must be between 0 and 1$"),
        (float("nan"), {"least": 0}, "b=nan: must be at least 0$"),
        ((0.5, 1.5), {"least": 0, "most": 1}, "b=1.5: must be between 0 and 1$"),
        (2**31, {"least": 0}, "b=2147483648: must be between 0 and 2147483647$"),
        (0, {"least": 1, "note": "1 is a chain"}, r"b=0: must be at least 1 \(1 is a chain\)$"),
    ],
)
def test_what_is_not_is_named(value, limits, said):
    with pytest.raises(ConfigError, match=said):
        check_range(SimpleNamespace(a=1, b=value), "a", "b", **limits)
