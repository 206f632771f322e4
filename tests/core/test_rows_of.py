"""States of a pass that several texts share: copied when they are asked for, and kept whole only where it is small."""

import pytest
import torch

from outdraft.core.rows_of import RowsOf, joined, kept


@pytest.mark.parametrize("asked", [[1, 4], [1, 2, 3], [3], []])
def test_states_of_a_pass_are_copied_when_they_are_asked_for(asked):
    whole = {2: torch.arange(12.0).view(6, 2), 5: torch.zeros(6, 3)}
    rows = RowsOf(whole, asked)
    assert set(rows) == {2, 5} and len(rows) == 2
    wanted = [[2.0 * row, 2.0 * row + 1] for row in asked]
    copied = rows[2]
    assert rows.shown(2).tolist() == wanted
    whole[2].zero_()
    assert copied.tolist() == wanted, "what was asked for is its own"
    with pytest.raises(KeyError):
        rows[3]


def test_the_rows_of_several_passes_stand_one_behind_the_other():
    first, second = ({0: torch.arange(8.0).view(4, 2) + start} for start in (0, 100))
    passes = [RowsOf(first, [1]), {0: torch.tensor([[50.0, 51.0]])}, RowsOf(second, [0, 3]), RowsOf(second, [1, 2])]
    wanted = [[2.0, 3.0], [50.0, 51.0], [100.0, 101.0], [106.0, 107.0], [102.0, 103.0], [104.0, 105.0]]
    for count, rows in ((1, 1), (4, 6)):
        made = joined(passes[:count])
        assert list(made) == [0] and made[0].tolist() == wanted[:rows]
    alone = joined([RowsOf(first, [1])])
    for whole in (first, second):
        whole[0].zero_()
    assert made[0].tolist() == wanted and alone[0].tolist() == wanted[:1], "copies of their own"


def test_of_a_pass_of_many_rows_only_copies_are_kept():
    """One text of a batch would hold the states of another's whole prompt."""
    few, many = ({0: torch.zeros(rows, 2)} for rows in (64, 65))
    whole = RowsOf(few, [3])
    assert kept(whole) is whole
    copy = kept(RowsOf(many, [3]))
    assert isinstance(copy, dict) and copy[0].untyped_storage().nbytes() == 8
