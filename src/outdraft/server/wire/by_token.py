"""Chunks of any size as one for each token, so that what is reported of a token stands beside its own text.

chunks   "It was", 2 tokens    "", 1 token    "n't", 1 token        where a stop string begins with "n"
pieces   "It"  " was"                         "n"  "'t"             a token waits for its text
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from outdraft.codecs.text import TextCodec
from outdraft.core.logprobs import TokenLogprobs
from outdraft.engine.callers.result import Chunk


class ByToken:
    """Of one text. A token that ends within a character has no text, and text that is cut off belongs to no token."""

    def __init__(self, codec: TextCodec) -> None:
        self._stream = codec.stream()
        self._waiting: deque[tuple[int, int, tuple[TokenLogprobs, ...]]] = deque()  # token, characters, logprobs
        self._text = ""  # that came, and is no piece yet

    def push(self, chunk: Chunk) -> Iterator[Chunk]:
        """The pieces that are complete with this chunk; of the last chunk, one more that ends the text."""
        self._text += chunk.text
        resumed = len(chunk.token_ids) - len(chunk.logprobs)  # tokens without log probabilities
        for i, token in enumerate(chunk.token_ids):
            own = chunk.logprobs[i - resumed : i - resumed + 1] if i >= resumed else ()
            self._waiting.append((token, len(self._stream.push(token)), own))
        is_last = chunk.finish_reason is not None
        while self._waiting and (is_last or self._waiting[0][1] <= len(self._text)):
            token, size, own = self._waiting.popleft()
            yield Chunk(text=self._text[:size], token_ids=(token,), logprobs=own)
            self._text = self._text[size:]
        if is_last:
            yield replace(chunk, text=self._text, token_ids=(), logprobs=())
