"""Log probabilities as OpenAI's two endpoints show them. Minus infinity, which JSON lacks, becomes null.

A token is shown as its text, a special token by its name. Of a token that holds a part of a character a chat gives the
bytes, which join to the whole; a completion, which has no field for them, spells them: `bytes:\\xf0\\x9f`.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from math import isfinite
from typing import Any

from outdraft.codecs.stream import TextStream
from outdraft.codecs.text import TextCodec
from outdraft.core.logprobs import TokenLogprobs


class Offsets:
    """Where the tokens of one text begin, in characters. A character counts with the token that completes it."""

    def __init__(self, stream: TextStream, begin: int = 0) -> None:
        self._stream, self._length = stream, begin

    def of(self, ids: Iterable[int]) -> list[int]:
        found = []
        for token in ids:
            found.append(self._length)
            self._length += len(self._stream.push(token))
        return found


def of_chat(tokens: Seq[TokenLogprobs], codec: TextCodec, count: int) -> dict[str, Any]:
    """`choices[i].logprobs` of a chat: for each token of the answer the `count` best in its place."""
    content = [
        {**_told(one.token, one.logprob, codec), "top_logprobs": [_told(*best, codec) for best in one.top[:count]]}
        for one in tokens
    ]
    return {"content": content, "refusal": None}


def of_completion(tokens: Seq[tuple[int, int, TokenLogprobs | None]], codec: TextCodec, count: int) -> dict[str, Any]:
    """`choices[i].logprobs` of a completion. `tokens`: each with its offset in the text, and its log probabilities;
    None: the first token of a prompt, which nothing stands before.
    """
    return {
        "tokens": [_name(token, codec) for token, _, _ in tokens],
        "token_logprobs": [None if one is None else number(one.logprob) for _, _, one in tokens],
        "top_logprobs": [None if one is None else _table(one, codec, count) for _, _, one in tokens],
        "text_offset": [offset for _, offset, _ in tokens],
    }


def of_ids(tokens: Seq[TokenLogprobs | None]) -> list[dict[str, float | None] | None]:
    """By token id, as vLLM shows those of a prompt: the token itself and the best in its place."""
    return [
        None if one is None else {str(token): number(value) for token, value in ((one.token, one.logprob), *one.top)}
        for one in tokens
    ]


def _table(one: TokenLogprobs, codec: TextCodec, count: int) -> dict[str, float | None]:
    """The best in a token's place and, as the last where it is none of them, the token itself."""
    return {_name(token, codec): number(value) for token, value in (*one.top[:count], (one.token, one.logprob))}


def _name(token: int, codec: TextCodec) -> str:
    """Another one for each token, as far as texts go."""
    data = codec.token_bytes(token)
    try:
        return data.decode() or codec.token_text(token)
    except UnicodeDecodeError:
        return "bytes:" + "".join(chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}" for byte in data)


def _told(token: int, value: float, codec: TextCodec) -> dict[str, Any]:
    """A special token has a name and no bytes, because it adds none to the text."""
    return {"token": codec.token_text(token), "logprob": number(value), "bytes": list(codec.token_bytes(token))}


def number(value: float) -> float | None:
    """As JSON has it: null in place of minus infinity."""
    return value if isfinite(value) else None
