"""Answers as rows of whole texts, laid out once: what `train_eagle3.py` reads on the device without asking the host.

    row of T + 1 tokens   | a a a a a a a | b b b b | c c c c c . . |     no text crosses an edge; about 3 % is empty

A row takes the text that leaves the least room among `_OPEN` rows that are filled side by side.
"""

import hashlib
import json
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lab.smollm2.packed import read

_OPEN = 48
HELD_OUT = 0.02  # of the prompts, by hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A prompt and its answer, which begins at `answer`."""

    ids: NDArray[np.uint16]
    answer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeRows:
    """`ids` [R, T + 1]; `documents` [R, T + 1], a row's from 0, -1: empty; `answer` [R, T + 1]: is learned."""

    ids: NDArray[np.int32]
    documents: NDArray[np.int16]
    answer: NDArray[np.bool_]


def texts_of(paths: Iterable[Path]) -> tuple[list[Text], list[Text]]:
    """Those that are learned from and those that are held out, without the ones that loop."""
    learned: list[Text] = []
    held: list[Text] = []
    for path in paths:
        arrays = read(path)
        prompts = np.split(arrays["prompt_ids"], np.cumsum(arrays["prompt_lens"], dtype=np.int64))
        answers = np.split(arrays["answer_ids"], np.cumsum(arrays["answer_lens"], dtype=np.int64))
        for prompt, answer, loops in zip(prompts, answers, arrays["loops"], strict=False):
            if not loops and len(answer) > 1:
                text = Text(ids=np.concatenate([prompt, answer]), answer=len(prompt))
                (held if is_held_out(prompt.tolist()) else learned).append(text)
    return learned, held


def is_held_out(prompt: Seq[int], share: float = HELD_OUT) -> bool:
    """By the prompt alone, so that all answers to it are on one side."""
    digest = hashlib.sha256(json.dumps(list(prompt)).encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32 < share


def lay_out(texts: Seq[Text], length: int, seed: int) -> WholeRows:
    """Rows of `length` + 1 tokens; longer texts are cut at their end."""
    rng = np.random.default_rng(seed)
    done: list[list[Text]] = []
    rows: list[list[Text]] = []
    room = np.zeros(0, np.int64)
    for number in rng.permutation(len(texts)):
        text = texts[number]
        size = min(len(text.ids), length + 1)
        left = np.where(room >= size, room, length + 2)
        if len(room) and (best := int(left.argmin())) >= 0 and left[best] <= length + 1:
            rows[best].append(text)
            room[best] -= size
            continue
        if len(rows) == _OPEN:
            full = int(room.argmin())
            done.append(rows[full])
            rows[full], room[full] = [text], length + 1 - size
        else:
            rows.append([text])
            room = np.append(room, length + 1 - size)
    done += rows
    shape = (len(done), length + 1)
    ids, documents, answer = np.zeros(shape, np.int32), np.full(shape, -1, np.int16), np.zeros(shape, np.bool_)
    for r, row in enumerate(done):
        at = 0
        for number, text in enumerate(row):
            own = text.ids[: length + 1]
            ids[r, at : at + len(own)], documents[r, at : at + len(own)] = own, number
            answer[r, at + min(text.answer, len(own)) : at + len(own)] = True
            at += len(own)
    return WholeRows(ids=ids, documents=documents, answer=answer)
