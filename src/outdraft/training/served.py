"""Requests as they were answered, ids alone: what a draft learns from, and the files that hold them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from outdraft.options.errors import ConfigError
from outdraft.training.corpus import LEAST, number_of
from outdraft.training.examples import read_records

ANSWERS = "answers.jsonl"  # beside a draft: answers that it was trained on, as `outdraft train answers` writes them


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRequest:
    """One request, as it was answered."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    domain: str = ""

    @property
    def number(self) -> float:
        """In 0..1, decided by the prompt: requests that ask the same are all held out, or none."""
        return number_of(np.array(self.prompt, np.int64))


def read_served(path: Path, vocab_size: int | None = None, tell: Callable[[str], object] = str) -> list[ServedRequest]:
    """Requests of a file, in its order; `tell` hears of those with too short an answer, which are left out.

    Raises `ConfigError` for a line without a prompt or an answer, or with ids outside the vocabulary.
    """
    found, num_short = list[ServedRequest](), 0
    for where, record in read_records(path):
        ids = [record.get(name) for name in ("prompt_token_ids", "token_ids")]
        if not all(isinstance(one, list) and all(type(token) is int for token in one) for one in ids):
            raise ConfigError(
                f"{where}: a served request has prompt_token_ids and token_ids, lists of ids; the target writes them "
                "(outdraft train answers)"
            )
        prompt, answer = (tuple(one or ()) for one in ids)
        if not prompt or not answer:
            raise ConfigError(f"{where}: a prompt of {len(prompt)} ids, an answer of {len(answer)}: leave it out")
        num_short += len(answer) < LEAST
        if vocab_size is not None and not 0 <= min(prompt + answer) <= max(prompt + answer) < vocab_size:
            raise ConfigError(f"{where} holds ids outside the target's vocabulary of {vocab_size}: name who wrote them")
        if len(answer) >= LEAST:
            found.append(ServedRequest(prompt=prompt, answer=answer, domain=str(record.get("domain") or "")))
    if num_short:
        tell(f"{path}: {num_short} answers of one token are left out: no token of them can be guessed")
    return found
