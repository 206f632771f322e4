"""One line of a load's record: one method, so many clients, all rounds; it can be read alone years later.

Every round stands there with plain decoding's figures of the same round. Of the gaps between pieces, which are many,
each round keeps some quantiles; of what a request has once, all figures.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np

from outdraft.bench.contest import merge
from outdraft.bench.identity import find_difference
from outdraft.bench.load.clients import Answer, Served

QUANTILES = (0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLoad:
    """What was measured of one method at one number of clients; lists are by round."""

    method: str
    clients: int
    jobs: str  # a fingerprint of the requests of a round
    num_requests: int
    num_prompt_tokens: int  # of a round
    identical: bool | None  # None: plain decoding's own texts are not promised here
    difference: str | None
    num_agreeing: int | None  # of another program: requests whose texts were plain decoding's in every round
    num_tokens: int  # of the first round, as are the counters below
    num_steps: int  # sequences' passes of the target that emitted any
    num_draft_tokens: int
    num_accepted_tokens: int
    num_rejections: int
    tau: float | None  # None: another program that does not report it
    tokens: list[int]
    seconds: list[float]
    plain_tokens: list[int]
    plain_seconds: list[float]
    work_seconds: list[float] | None  # of processors, clients included; None: it was not known in every round
    plain_work_seconds: list[float] | None
    first_token_seconds: list[list[float]]  # of each request of the round
    request_seconds: list[list[float]]  # likewise, from asking to the last piece
    token_seconds: list[list[float]]  # likewise, of a token after the first piece
    gap_quantiles: list[dict[str, float]]  # of the seconds between two pieces, over all requests of the round


def make_row(
    method: str,
    clients: int,
    rounds: Seq[Served],
    plain: Seq[Served],
    *,
    promised: bool,
    foreign: bool,
    jobs: str,
    num_prompt_tokens: int,
) -> MeasuredLoad:
    """From all rounds of this method and plain decoding's of the same rounds. Texts are compared with plain's first."""
    wanted = plain[0].answers
    difference = first_difference(rounds, wanted) if promised else None
    told = [answer.stats for answer in rounds[0].answers.values() if answer.stats is not None]
    stats = merge(told)
    answers = [[served.answers[number] for number in sorted(served.answers)] for served in rounds]
    return MeasuredLoad(
        method=method,
        clients=clients,
        jobs=jobs,
        num_requests=len(wanted),
        num_prompt_tokens=num_prompt_tokens,
        identical=difference is None if promised else None,
        difference=difference,
        num_agreeing=count_agreeing(rounds, wanted) if foreign else None,
        num_tokens=rounds[0].num_tokens,
        num_steps=stats.num_steps,
        num_draft_tokens=stats.num_draft_tokens,
        num_accepted_tokens=stats.num_accepted_tokens,
        num_rejections=stats.num_rejections,
        tau=stats.tau if told else None,
        tokens=[served.num_tokens for served in rounds],
        seconds=[served.seconds for served in rounds],
        plain_tokens=[served.num_tokens for served in plain],
        plain_seconds=[served.seconds for served in plain],
        work_seconds=_work(rounds),
        plain_work_seconds=_work(plain),
        first_token_seconds=[[one.first_seconds for one in of] for of in answers],
        request_seconds=[[one.arrivals[-1] for one in of] for of in answers],
        token_seconds=[[one.token_seconds for one in of if one.token_seconds is not None] for of in answers],
        gap_quantiles=[_quantiles([gap for one in of for gap in one.gaps]) for of in answers],
    )


def first_difference(rounds: Seq[Served], wanted: Mapping[int, Answer]) -> str | None:
    """Where a text parts from plain decoding's, in words: the first of the first round that has one."""
    for number, served in enumerate(rounds, 1):
        for request, answer in sorted(served.answers.items()):
            told = find_difference(answer.token_ids or (), wanted[request].token_ids or ())
            if told is not None:
                return f"round {number}, request {request}: {told}"
    return None


def count_agreeing(rounds: Seq[Served], wanted: Mapping[int, Answer]) -> int:
    """Requests whose answers were these in every round: by ids where they are given, else by their text."""
    return sum(all(_same(served.answers[number], one) for served in rounds) for number, one in wanted.items())


def _same(mine: Answer, plain: Answer) -> bool:
    return mine.text == plain.text if mine.token_ids is None else mine.token_ids == plain.token_ids


def _work(rounds: Seq[Served]) -> list[float] | None:
    told = [served.work_seconds for served in rounds if served.work_seconds is not None]
    return told if len(told) == len(rounds) else None


def _quantiles(values: Seq[float]) -> dict[str, float]:
    """Empty where there are no values."""
    return {str(at): float(np.quantile(values, at)) for at in QUANTILES} if values else {}
