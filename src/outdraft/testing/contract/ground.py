"""What every check stands on: the prompts, the sampling settings, and what it means to agree with the oracle."""

from collections.abc import Sequence as Seq
from dataclasses import replace

from outdraft.core.request import Request
from outdraft.options.params import SamplingParams
from outdraft.testing.audit import require
from outdraft.testing.subject import Outcome, Subject

LENGTH = 24

PROMPTS: tuple[tuple[int, ...], ...] = (
    (7,),
    (1, 2, 3),
    (5, 6, 7, 8, 5, 6, 7, 8, 5, 6),  # something to copy
    tuple(range(10, 35)),
    (9, 9, 9, 9, 9, 9, 4, 9, 9, 9, 4, 9),
)

GREEDY = SamplingParams(max_tokens=LENGTH)
SEEDED = SamplingParams(max_tokens=LENGTH, temperature=1.0, seed=20)
WARPED = SamplingParams(max_tokens=LENGTH, temperature=0.8, seed=21, top_k=20, top_p=0.9, min_p=0.02)
PENALISED = SamplingParams(
    max_tokens=LENGTH, repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.3, logit_bias={3: 1.5, 8: -2.0}
)
PENALISED_SEEDED = replace(PENALISED, temperature=1.0, seed=22, min_tokens=6, stop_token_ids=(3, 5, 9))


def requests(params: SamplingParams) -> list[Request]:
    """The prompts with these settings."""
    return [Request(prompt_token_ids=prompt, params=params) for prompt in PROMPTS]


def agrees(subject: Subject, outcome: Outcome, wanted: Seq[int], what: str) -> None:
    """The outcome's ids are the wanted ones."""
    written = outcome.seq.output
    shared = min(len(written), len(wanted))
    at = next((i for i in range(shared) if written[i] != wanted[i]), shared)
    require(
        written == list(wanted),
        f"{subject.row.name}, {what}, prompt {outcome.seq.request.prompt_token_ids}: token {at} differs; "
        f"wrote {written[at : at + 4]}, the target alone writes {list(wanted[at : at + 4])}",
    )
