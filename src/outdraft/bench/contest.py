"""A few prompts, all drafters, summed up on the spot: the demo's measurement (`outdraft bench` keeps every row).

A round lets every drafter write every prompt once. Speed-up is the median over rounds of plain seconds / drafter's
seconds of the same round. Data in: a plain engine and rivals over its weights; data out: a `Contest`.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from outdraft.bench.entrant import Entrant, Ours
from outdraft.bench.lineup import Rival
from outdraft.bench.trial import PLAIN, PromptTrial, begin, join, time_round
from outdraft.engine.llm import LLM
from outdraft.engine.stats import RequestStats
from outdraft.options.errors import OutdraftError
from outdraft.options.params import SamplingParams

MIN_ROUNDS, MAX_ROUNDS = 3, 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What one drafter achieved over all prompts; `by_kind` has the same of each kind of prompt alone."""

    name: str
    identical: bool
    tau: float
    speedup: float
    acceptance_by_position: list[float]
    by_kind: dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """The whole run. `absent`: drafter -> why it cannot draft for this model."""

    plain_tps: float
    num_rounds: int
    scores: list[Score]
    absent: dict[str, str]


def hold(
    plain: LLM,
    rivals: Seq[Rival],
    prompts: Mapping[str, list[int]],
    *,
    max_tokens: int,
    seconds: float,
    strict: bool = True,
    progress: Callable[[str], None] = lambda message: None,
) -> Contest:
    """Run rounds for about `seconds`, after one that warms up and compares texts.

    `strict`: a drafter that cannot draft for this model is an error; else it is left out and named.
    """
    entrants: dict[str, Entrant] = {PLAIN: Ours(plain)}
    absent: dict[str, str] = {}
    for rival in rivals:
        try:
            entrants[rival.name] = Ours(join(plain, rival))
        except OutdraftError as error:
            if strict:
                raise
            absent[rival.name] = str(error)
    params = SamplingParams(max_tokens=max_tokens)
    progress("comparing texts")
    trials = {kind: begin(entrants, ids, params) for kind, ids in prompts.items()}
    num_rounds, began = 0, perf_counter()
    while num_rounds < MAX_ROUNDS and (num_rounds < MIN_ROUNDS or perf_counter() - began < seconds):
        progress(f"timing: round {num_rounds + 1}")
        for kind, ids in prompts.items():
            time_round(trials[kind], entrants, ids, params, number=num_rounds)
        num_rounds += 1
    written = sum(len(of[PLAIN].first.token_ids) for of in trials.values())
    return Contest(
        plain_tps=written / median(_seconds(trials, PLAIN, number) for number in range(num_rounds)),
        num_rounds=num_rounds,
        scores=[_score(name, trials, num_rounds) for name in entrants],
        absent=absent,
    )


def _seconds(trials: Mapping[str, Mapping[str, PromptTrial]], name: str, number: int) -> float:
    return sum(of[name].rounds[number].seconds for of in trials.values())


def _score(name: str, trials: Mapping[str, Mapping[str, PromptTrial]], num_rounds: int) -> Score:
    stats = merge([of[name].first.stats for of in trials.values()])
    by_kind = {
        kind: {
            "tau": of[name].first.stats.tau,
            "speedup": median(p.seconds / m.seconds for p, m in zip(of[PLAIN].rounds, of[name].rounds, strict=True)),
        }
        for kind, of in trials.items()
    }
    return Score(
        name=name,
        identical=all(of[name].identical for of in trials.values()),
        tau=stats.tau,
        speedup=median(_seconds(trials, PLAIN, n) / _seconds(trials, name, n) for n in range(num_rounds)),
        acceptance_by_position=stats.acceptance_by_position,
        by_kind=by_kind,
    )


def merge(parts: Seq[RequestStats]) -> RequestStats:
    """The sum of the counters of several requests."""
    whole = RequestStats()
    for part in parts:
        whole.num_steps += part.num_steps
        whole.num_tokens += part.num_tokens
        whole.num_draft_tokens += part.num_draft_tokens
        whole.num_accepted_tokens += part.num_accepted_tokens
        whole.num_rejections += part.num_rejections
        whole.first_rejection += part.first_rejection
        whole.reached += part.reached
    return whole
