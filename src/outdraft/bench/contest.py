"""All drafters on the same prompts, timed in turn in one run: what each saves, and whether each writes the same text.

A round lets every drafter write every prompt once, in changing order, so that a machine that slows down slows all of
them. Speed-up is the median over rounds of plain seconds / drafter's seconds of the same round.
Data in: a plain engine and rivals over its weights; data out: a `Contest`.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from outdraft.bench.lineup import Rival
from outdraft.core.errors import OutdraftError
from outdraft.core.params import SamplingParams
from outdraft.engine.llm import LLM
from outdraft.engine.stats import RequestStats
from outdraft.engine.writer import Result

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
    entrants, absent = {"none": plain}, {}
    for rival in rivals:
        try:
            entrants[rival.name] = join(plain, rival)
        except OutdraftError as error:
            if strict:
                raise
            absent[rival.name] = str(error)
    params = SamplingParams(max_tokens=max_tokens)
    texts: dict[str, dict[str, Result]] = {}
    for name, llm in entrants.items():
        progress(f"comparing texts: {name}")
        texts[name] = {kind: llm.generate({"prompt_token_ids": ids}, params) for kind, ids in prompts.items()}

    rounds: list[dict[str, dict[str, float]]] = []  # [round][drafter][kind] seconds
    began = perf_counter()
    while len(rounds) < MAX_ROUNDS and (len(rounds) < MIN_ROUNDS or perf_counter() - began < seconds):
        progress(f"timing: round {len(rounds) + 1}")
        rounds.append(_time_round(entrants, prompts, params, backwards=len(rounds) % 2 == 1))
    written = sum(len(result.token_ids) for result in texts["none"].values())
    return Contest(
        plain_tps=written / median(sum(one["none"].values()) for one in rounds),
        num_rounds=len(rounds),
        scores=[_score(name, texts, rounds) for name in entrants],
        absent=absent,
    )


def join(plain: LLM, rival: Rival) -> LLM:
    """The rival's engine over the same weights."""
    return plain.with_drafter(rival.name, rival.options, num_speculative_tokens=rival.num_speculative_tokens)


def _time_round(
    entrants: Mapping[str, LLM], prompts: Mapping[str, list[int]], params: SamplingParams, *, backwards: bool
) -> dict[str, dict[str, float]]:
    order = list(entrants)[:: -1 if backwards else 1]
    seconds: dict[str, dict[str, float]] = {name: {} for name in order}
    for kind, ids in prompts.items():
        for name in order:
            began = perf_counter()
            entrants[name].generate({"prompt_token_ids": ids}, params)
            seconds[name][kind] = perf_counter() - began
    return seconds


def _score(
    name: str, texts: Mapping[str, Mapping[str, Result]], rounds: Seq[Mapping[str, Mapping[str, float]]]
) -> Score:
    mine, theirs = texts[name], texts["none"]
    stats = merge([result.stats for result in mine.values()])
    by_kind = {
        kind: {"tau": mine[kind].stats.tau, "speedup": median(one["none"][kind] / one[name][kind] for one in rounds)}
        for kind in mine
    }
    return Score(
        name=name,
        identical=all((mine[k].token_ids, mine[k].text) == (theirs[k].token_ids, theirs[k].text) for k in mine),
        tau=stats.tau,
        speedup=median(sum(one["none"].values()) / sum(one[name].values()) for one in rounds),
        acceptance_by_position=stats.acceptance_by_position,
        by_kind=by_kind,
    )


def merge(parts: Seq[RequestStats]) -> RequestStats:
    """Counters of several requests together."""
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
