"""The marks before an answer are found in a training's prompts, and missed in prompts of another template."""

import random

import pytest

from outdraft.adapt.diagnose import diagnose
from outdraft.adapt.kinds import Cure, Kind
from outdraft.adapt.observe import Observed
from outdraft.adapt.template import ServedMarks, common_end

MARKS = (2, 198, 1, 520)


def prompts(count, marks, seed=0):
    dice = random.Random(seed)
    return [[1, *(dice.randrange(300, 900) for _ in range(dice.randrange(1, 9))), *marks] for _ in range(count)]


def test_the_common_end_of_prompts():
    assert common_end(prompts(50, MARKS)) == MARKS
    assert common_end([*prompts(48, MARKS), *prompts(2, (9, 9))]) == MARKS
    assert common_end([*prompts(40, MARKS), *prompts(10, (9, 9))]) == ()
    assert common_end([*prompts(40, MARKS), *prompts(3, (9, 520))]) == MARKS
    assert common_end([]) == common_end([[], []]) == ()
    assert len(common_end([[7] * 40] * 3)) == 16


@pytest.mark.parametrize(("wrong", "found"), [(0, False), (10, False), (100, True), (60, True)])
def test_another_template_is_found(wrong, found):
    served = ServedMarks(marks=MARKS)
    for one in [*prompts(100 - wrong, MARKS), *prompts(wrong, (91, 92), seed=1)]:
        served.add(one)
    finding = served.finding()
    assert finding.evidence.is_alarm is found and finding.evidence.power > 0.9
    said = diagnose(Observed(), findings=[finding])
    assert (said.kind is Kind.TEMPLATE) is found
    if found:
        assert said.cure is Cure.MEND and f"{wrong} of 100 prompts" in said.sentence


def test_a_few_prompts_or_no_marks_show_nothing():
    few, none = ServedMarks(marks=MARKS), ServedMarks(marks=())
    for one in prompts(20, (91, 92)):
        assert few.finding() is None
        few.add(one)
        none.add(one)
    assert few.finding().evidence.is_alarm and none.finding() is None
