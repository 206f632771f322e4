"""One prompt, all methods in turn: a first text each, which warms up and is compared with plain decoding's, then
timed rounds.

In a round every method writes the text once, in an order that changes from round to round, so that a machine that slows
down slows all of them; a method is compared with plain decoding of its own round alone.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import TypeVar

from outdraft.bench.clock import Timed
from outdraft.bench.entrant import Entrant
from outdraft.bench.identity import count_agreeing, find_difference
from outdraft.bench.lineup import Rival
from outdraft.engine.llm import LLM
from outdraft.options.params import SamplingParams

PLAIN = "none"
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class PromptTrial:
    """One method on one prompt. `identical` is None where plain decoding's text is not promised.

    agreement: of another program, how many tokens it wrote before its first difference from plain decoding's, in the
        worst of its texts; None for our own methods.
    """

    first: Timed
    identical: bool | None
    difference: str | None
    peak_bytes: dict[str, int]
    agreement: int | None = None
    rounds: list[Timed] = field(default_factory=list)


def join(plain: LLM, rival: Rival) -> LLM:
    """The rival's engine over the same weights."""
    return plain.with_speculation(**rival.words)


def begin(
    entrants: Mapping[str, Entrant],
    ids: Seq[int],
    params: SamplingParams,
    tell: Callable[[str], None] = lambda label: None,
    *,
    references: Seq[Seq[int]] = (),
) -> dict[str, PromptTrial]:
    """The first text of every method, plain decoding's before all; `entrants[PLAIN]` must be there."""
    trials: dict[str, PromptTrial] = {}
    for label in [PLAIN, *(label for label in entrants if label != PLAIN)]:
        tell(label)
        entrant = entrants[label]
        entrant.forget_peak()
        first = entrant.time_text(ids, params, references=references)
        promised = entrant.promises(params)
        plain = first if label == PLAIN else trials[PLAIN].first
        difference = find_difference(first.token_ids, plain.token_ids) if promised else None
        if promised and difference is None and first.text != plain.text:
            difference = "the tokens are plain decoding's, their text is not"
        trials[label] = PromptTrial(
            first=first,
            identical=difference is None if promised else None,
            difference=difference,
            peak_bytes=entrant.read_peak(),
            agreement=count_agreeing(first.token_ids, plain.token_ids) if entrant.foreign else None,
        )
    return trials


def time_round(
    trials: Mapping[str, PromptTrial],
    entrants: Mapping[str, Entrant],
    ids: Seq[int],
    params: SamplingParams,
    *,
    number: int,
    tell: Callable[[str], None] = lambda label: None,
    references: Seq[Seq[int]] = (),
) -> None:
    """One more text of every method; where plain decoding's is promised it is compared again."""
    for label in order(list(trials), number):
        tell(label)
        trial, timed = trials[label], entrants[label].time_text(ids, params, references=references)
        trial.rounds.append(timed)
        plain_ids = trials[PLAIN].first.token_ids
        if trial.agreement is not None:
            trial.agreement = min(trial.agreement, count_agreeing(timed.token_ids, plain_ids))
        difference = find_difference(timed.token_ids, plain_ids)
        if trial.identical and difference is not None:
            trial.identical, trial.difference = False, f"in timed round {number + 1}, {difference}"


def order(labels: list[T], number: int) -> list[T]:
    """Who comes when in this round: every label begins in turn, and every second round goes backwards."""
    start = number % len(labels)
    first, *others = labels[start:] + labels[:start]
    return [first, *(reversed(others) if number % 2 else others)]
