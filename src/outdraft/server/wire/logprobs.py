"""Log probabilities as OpenAI's two endpoints show them. Minus infinity, which JSON lacks, becomes null.

A token is shown as its text; half a character is shown by its bytes, which join to the whole.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from math import isfinite
from typing import Any

from outdraft.core.logprobs import TokenLogprobs

Bytes = Callable[[int], bytes]  # of a token


def of_chat(tokens: Seq[TokenLogprobs], spell: Bytes, count: int) -> dict[str, Any]:
    """`choices[i].logprobs` of a chat: for each token of the answer the `count` best in its place."""
    return {"content": [_entry(one, spell, count) for one in tokens], "refusal": None}


def of_completion(tokens: Seq[TokenLogprobs | None], spell: Bytes, count: int, offset: int) -> dict[str, Any]:
    """`choices[i].logprobs` of a completion. `offset`: characters of the answer before the first of these tokens.

    None: the first token of a prompt, which nothing stands before.
    """
    texts, offsets, ids = [], [], []
    for one in tokens:
        offsets.append(offset)
        texts.append(_text(spell(one.token)) if one is not None else "")
        offset += len(texts[-1])
        ids.append(one)
    return {
        "tokens": texts,
        "token_logprobs": [None if one is None else number(one.logprob) for one in ids],
        "top_logprobs": [
            None if one is None else {_text(spell(token)): number(value) for token, value in one.top[:count]}
            for one in ids
        ],
        "text_offset": offsets,
    }


def of_ids(tokens: Seq[TokenLogprobs | None]) -> list[dict[str, float | None] | None]:
    """By token id, as vLLM shows those of a prompt: the token itself and the best in its place."""
    return [
        None if one is None else {str(token): number(value) for token, value in ((one.token, one.logprob), *one.top)}
        for one in tokens
    ]


def _entry(one: TokenLogprobs, spell: Bytes, count: int) -> dict[str, Any]:
    listed = [_told(token, value, spell) for token, value in one.top[:count]]
    return {**_told(one.token, one.logprob, spell), "top_logprobs": listed}


def _told(token: int, value: float, spell: Bytes) -> dict[str, Any]:
    data = spell(token)
    return {"token": _text(data), "logprob": number(value), "bytes": list(data)}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def number(value: float) -> float | None:
    """As JSON has it: null in place of minus infinity."""
    return value if isfinite(value) else None
