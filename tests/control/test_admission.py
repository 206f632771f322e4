"""Slots of several guesses go into a pass while they pay, and none is chosen by its own value."""

import random
from functools import partial
from itertools import accumulate, product
from operator import mul

import pytest

from outdraft.control.shared.admission import admit

PASS, ROW = 1.0, 0.06  # seconds of a pass, and of each row in it


def pass_cost(rows):
    return PASS + ROW * rows


def best_of_all(survivals, rows, rate, cost):
    """The number of slots of each guess that makes most: all divisions are looked at."""
    worth = {
        sizes: sum(sum(own[:k]) for own, k in zip(survivals, sizes, strict=True)) - rate * cost(rows + sum(sizes))
        for sizes in product(*(range(len(own) + 1) for own in survivals))
    }
    return max(worth.values()), worth


@pytest.mark.parametrize("seed", range(20))
def test_what_is_admitted_is_worth_most(seed):
    dice = random.Random(seed)
    survivals = [sorted((dice.random() for _ in range(dice.randrange(5))), reverse=True) for _ in range(3)]
    rate = dice.uniform(0.5, 8)
    sizes = admit(survivals, rows=3, rate=rate, pass_cost=pass_cost, usual=0.7)
    best, worth = best_of_all(survivals, 3, rate, pass_cost)
    assert worth[tuple(sizes)] == pytest.approx(best)


def test_it_looks_beyond_a_step_of_the_cost():
    """Five rows cost twice as much as four, and eight cost as much as five."""

    def stepped(rows):
        return 1.0 + (rows > 4)

    sure = [[0.9, 0.81, 0.73, 0.66, 0.59, 0.53, 0.48]]
    assert admit(sure, rows=1, rate=2.0, pass_cost=stepped, usual=0.9) == [7]
    assert admit(sure, rows=1, rate=2.0, pass_cost=stepped, usual=0.3) == [3]  # what is behind the step is not foreseen
    # How long a guess is may depend on its tokens, so it says nothing: the fourth slot is admitted all the same.
    assert admit([sure[0][:4]], rows=1, rate=2.0, pass_cost=stepped, usual=0.9) == [4]
    assert admit(sure, rows=1, rate=0.5, pass_cost=stepped, usual=0.3) == [7]


def _step(steps, rows):
    return steps[min(len(steps) - 1, int(rows))]


def test_a_guess_that_ends_earlier_is_no_other_guess():
    """Where unlikely tokens end a guess its length says what was drawn: slots before the end are as in a longer one."""
    dice, some = random.Random(3), 0
    for _ in range(300):
        whole = list(accumulate((dice.uniform(0.3, 1.0) for _ in range(8)), mul))
        steps = sorted(dice.uniform(0.0, 3.0) for _ in range(12))
        cost, rate = partial(_step, steps), dice.uniform(0.2, 3.0)
        (kept,) = admit([whole], rows=1, rate=rate, pass_cost=cost, usual=0.8)
        for end in range(1, 8):
            assert admit([whole[:end]], rows=1, rate=rate, pass_cost=cost, usual=0.8) == [min(end, kept)]
        some += 0 < kept < 8
    assert some > 30


def test_no_slot_is_asked_about_after_its_own_value():
    """Whatever stands behind the first slot that is not admitted changes nothing."""

    class Hidden(list):
        def __init__(self, values, seen):
            super().__init__(values)
            self.seen = seen

        def __getitem__(self, at):
            self.seen.append(at)
            return super().__getitem__(at)

    seen = [], []
    guesses = [Hidden([0.9, 0.5, 0.1, 0.05], seen[0]), Hidden([0.6, 0.3, 0.2, 0.1], seen[1])]
    sizes = admit(guesses, rows=2, rate=5.0, pass_cost=pass_cost, usual=0.1)
    assert sizes == [2, 2] and [max(one) for one in seen] == [2, 2]  # the next one's survival, which knows no more
