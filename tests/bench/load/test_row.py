"""Rounds to a line of the record: sums, quantiles, and whose text was another one."""

from dataclasses import replace

import pytest

from outdraft.bench.load.clients import Answer, Served
from outdraft.bench.load.row import make_row
from outdraft.engine.stats import RequestStats

STATS = RequestStats(num_steps=2, num_tokens=4, num_draft_tokens=6, num_accepted_tokens=2, num_rejections=1)
ANSWER = Answer(arrivals=(0.1, 0.2, 0.5), num_first=1, num_tokens=4, text="abcd", token_ids=(1, 2, 3, 4), stats=STATS)
ROUND = Served(answers={1: ANSWER, 0: replace(ANSWER, arrivals=(0.3, 0.4, 0.5))}, seconds=2.0, work_seconds=1.5)


def row(rounds, plain=(ROUND, ROUND), *, promised=True, foreign=False):
    return make_row("mine", 2, rounds, plain, promised=promised, foreign=foreign, jobs="abc", num_prompt_tokens=9)


def test_figures():
    made = row([ROUND, replace(ROUND, seconds=4.0)])
    assert made.tokens == [8, 8] and made.seconds == [2.0, 4.0] and made.plain_seconds == [2.0, 2.0]
    assert made.work_seconds == [1.5, 1.5] == made.plain_work_seconds
    assert row([ROUND, replace(ROUND, work_seconds=None)], foreign=True).work_seconds is None
    assert made.tau == 2.0 and (made.num_steps, made.num_tokens, made.num_draft_tokens) == (4, 8, 12)
    assert made.first_token_seconds == [[0.3, 0.1]] * 2, "by the number of the request"
    assert made.request_seconds == [[0.5, 0.5]] * 2
    assert made.token_seconds[0] == pytest.approx([0.2 / 3, 0.4 / 3])
    assert made.gap_quantiles[0]["0.5"] == pytest.approx(0.1) and made.gap_quantiles[0]["1.0"] == pytest.approx(0.3)
    assert made.identical is True and made.num_agreeing is None


def test_another_text_in_any_round_is_reported():
    other = Served(answers={0: ANSWER, 1: replace(ANSWER, token_ids=(1, 2, 9, 4))}, seconds=2.0, work_seconds=None)
    made = row([ROUND, other])
    assert made.identical is False and made.difference == "round 2, request 1: token 2 is 9, plain decoding's is 3"
    assert row([ROUND, other], promised=False).identical is None
    assert row([ROUND, ROUND], plain=(ROUND, other)).identical is True, "plain decoding's first round counts"


@pytest.mark.parametrize("ids", [True, False])
def test_another_program_agrees_or_not(ids: bool):
    mine = replace(ANSWER, stats=None, token_ids=ANSWER.token_ids if ids else None)
    far = replace(mine, text="abce", token_ids=(1, 2, 3, 5) if ids else None)
    made = row(
        [
            Served(answers={0: mine, 1: mine}, seconds=1.0, work_seconds=None),
            Served(answers={0: mine, 1: far}, seconds=1.0, work_seconds=None),
        ],
        promised=False,
        foreign=True,
    )
    assert made.num_agreeing == 1 and made.tau is None and made.identical is None


def test_answers_of_one_piece_have_no_gaps():
    one = replace(ANSWER, arrivals=(0.1,), num_first=4)
    made = row([Served(answers={0: one, 1: one}, seconds=1.0, work_seconds=None)])
    assert made.gap_quantiles == [{}] and made.token_seconds == [[]]
