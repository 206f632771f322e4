"""The tokens of an answer, for clients that ask with `return_token_ids`: ids, sources, and the text of each.

    token_ids      [4711, 12]
    token_sources  ["accepted", "bonus"]
    token_texts    [" was", " late"]      a character spread over several tokens stands with the one that ends it

Texts join to what the answer's tokens say; a stop string may cut the answer itself short of it.
"""

from typing import Any

from outdraft.codecs.stream import TextStream
from outdraft.codecs.text import TextCodec
from outdraft.engine.callers.result import Chunk, Result


class TokensTold:
    """Of one request's texts. `codec`: None where the model has no tokenizer; the texts are then left out."""

    def __init__(self, codec: TextCodec | None) -> None:
        self._codec = codec
        self._streams: dict[int, TextStream] = {}  # a text's half-read character

    def of(self, text: Chunk | Result, index: int) -> dict[str, Any]:
        """The fields of a piece, or of a whole text. `index`: which text of the request it belongs to."""
        told: dict[str, Any] = {"token_ids": list(text.token_ids), "token_sources": list(text.sources)}
        if self._codec is None:
            return told
        stream = self._streams.setdefault(index, self._codec.stream())
        texts = [stream.push(token) for token in text.token_ids]
        if text.finish_reason is not None and texts:
            texts[-1] += stream.finish()
        return {**told, "token_texts": texts}
