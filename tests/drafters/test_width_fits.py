"""A drafter's width that nothing names fits the target's kernels: a chain where each row of a pass takes time."""

import pytest

from outdraft.drafters.shared.features.static_tree import TreeOptions
from outdraft.drafters.shared.heads.config import HeadOptions
from outdraft.drafters.shared.state_options import StateOptions


@pytest.mark.parametrize("kind", [StateOptions, HeadOptions])
@pytest.mark.parametrize(
    "kernels, width", [("avx2", 1), ("portable", 1), ("avx512", 1), ("amx", 4), ("neon", 1), (None, 4)]
)
def test_a_chain_where_rows_cost_and_a_tree_elsewhere(kind, kernels, width):
    assert kind().fitted(kernels).width == width
    assert kind(width=3).fitted(kernels).width == 3


def test_a_tree_of_fixed_form_keeps_its_width():
    assert (
        TreeOptions(tree="static").fitted("avx2").width == 4 and TreeOptions(tree="dynamic").fitted("avx2").width == 1
    )


def test_the_static_tree_is_the_default_where_rows_are_cheap():
    assert TreeOptions().fitted("avx512").width == 1 and TreeOptions().fitted("amx").width == 4
    assert TreeOptions().shape is not None
