"""What a trained draft promises: its acceptance behind the beginnings of held-out answers, as the trainer's own passes
say.

    a chat     | system, question | answer        | question | answer
                                  ^                          ^
    a text     | 32 tokens | the rest of it
                           ^
    a long one is begun again every 128 tokens, so that a few give several

The target writes behind each, greedy and at temperature 1, and one pass over what it wrote gives the rounds that the
draft would need (`walk.py`). `outdraft train check` compares an engine with that (`check.py`).
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import replace
from itertools import islice, pairwise
from math import ceil
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from outdraft.core.learner import Learner
from outdraft.engine.callers.result import Result, all_whole
from outdraft.engine.llm import LLM
from outdraft.options.params import SamplingParams
from outdraft.training.computing import name_of
from outdraft.training.corpus import TrainingCorpus
from outdraft.training.course import Course
from outdraft.training.draft import Exam
from outdraft.training.lessons import Teacher
from outdraft.training.packing import answer_rows
from outdraft.training.record import Promise, PromiseTerms
from outdraft.training.walk import Walk

LEAST_ROUNDS = 5000  # of a check
_MARGIN = 1.1  # rounds of a check, over those that it needs
_PROMPT = 256  # tokens that the target reads before it writes what is promised about
_MAX_TOKENS = 64  # that it writes
_TEXTS, _MOST_TEXTS = 256, 4096
_FIRST = 32  # tokens of a text that has no prompt of its own
_APART = 128  # tokens between two beginnings in what counts


def promises(course: Course, *, texts: int | None = None) -> list[Promise]:
    """What the trainer's own passes say, greedy and sampled, after the beginnings of held-out examples.

    `texts`: about how many; None: as many as a check has enough rounds in. At most as many as there are.
    """
    most = course.teacher.target.config.max_len
    longest = min(_PROMPT, most // 2)
    known = list(islice(beginnings(course.held_out, longest), texts or _MOST_TEXTS))
    made = []
    for temperature in (0.0, 1.0):
        terms = PromiseTerms(
            prompts=tuple(known[: texts or _TEXTS]),
            max_tokens=min(_MAX_TOKENS, most - longest - 1),
            depth=course.plan.depth,
            temperature=temperature,
        )
        seen = promise(course.learner, course.teacher, course.verifier, terms, dtype=course.serves)
        begun = len(terms.prompts)
        enough = ceil(begun * _MARGIN * LEAST_ROUNDS / max(1.0, sum(seen.rounds)))
        if texts is None and (more := tuple(known[begun:enough])):  # the better a draft, the fewer rounds has a text
            rest = replace(terms, prompts=more)
            seen += promise(course.learner, course.teacher, course.verifier, rest, seed=begun, dtype=course.serves)
            terms = replace(terms, prompts=terms.prompts + more)
        terms = replace(terms, depth=len(seen.kept))  # a draft may know fewer
        made.append(
            Promise(
                terms=terms,
                tau=seen.tau,
                standard_error=seen.standard_error,
                conditional=tuple(seen.conditional),
                exhausted=len(terms.prompts) == len(known) < (texts or _MOST_TEXTS),
            )
        )
    return made


def promise(
    learner: Learner,
    teacher: Teacher,
    target: Path,
    terms: PromiseTerms,
    *,
    seed: int = 0,
    dtype: torch.dtype | None = None,
) -> Walk:
    """What the trainer's passes say about texts that the target writes now, in the number format that serves it.

    `dtype`: that format; None: the passes' own.
    """
    device = str(teacher.target.device)
    writer = LLM(target, drafter="none", dtype=name_of(dtype or teacher.target.dtype), device=device)
    texts = written(writer, terms, seed)
    pairs = [(one.prompt_token_ids, one.token_ids) for one in texts]
    batches = [answer_rows(pairs[i : i + 16]) for i in range(0, len(pairs), 16)]
    exam = Exam(batches=batches, depth=terms.depth, temperature=terms.temperature)
    with torch.no_grad(), teacher.computing():
        return exam.walk(learner, teacher)


def written(llm: LLM, terms: PromiseTerms, seed: int | None) -> Seq[Result]:
    """The texts behind the prompts of a promise, each as long as it says. `seed`: of the first; None: drawn anew."""
    settings = [
        SamplingParams(
            max_tokens=terms.max_tokens,
            temperature=terms.temperature,
            ignore_eos=True,
            seed=None if seed is None else seed + i,
        )
        for i in range(len(terms.prompts))
    ]
    return all_whole(llm.generate([{"prompt_token_ids": list(prompt)} for prompt in terms.prompts], settings))


def beginnings(corpus: TrainingCorpus, longest: int) -> Iterator[tuple[int, ...]]:
    """The tokens before each place where something to be guessed begins, the last `longest` of them."""
    starts = corpus.starts.tolist()
    places = [_places(corpus.counts[a:b], longest) for a, b in pairwise(starts)]
    seen = set()
    for number in range(max(map(len, places), default=0)):
        for start, own in zip(starts[:-1], places, strict=True):
            if number < len(own):
                stop = start + own[number]
                prompt = tuple(corpus.ids[max(start, stop - longest) : stop].tolist())
                if prompt not in seen:
                    seen.add(prompt)
                    yield prompt


def _places(counts: NDArray[np.bool_], longest: int) -> list[int]:
    """In one example [n]: none is at 0, where there is no prompt, or at the end, where there is nothing to write."""
    edges = np.flatnonzero(np.diff(counts.astype(np.int8), prepend=0, append=0))  # a run begins, it ends, ...
    found: list[int] = []
    for begin, end in edges.reshape(-1, 2).tolist():
        found += range(begin or max(1, min(_FIRST, longest, end - 1)), end, _APART)
    return found
