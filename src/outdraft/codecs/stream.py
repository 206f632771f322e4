"""Text as it is written: token by token, never half a character, never a change to what was shown.

    tokens   [..E2] [82] [AC 20]            a character may be spread over tokens
    pieces    ""     ""   "€ "              and is emitted when it is whole

`TextStream` turns tokens into pieces that join exactly to `codec.decode` of the whole; each byte costs O(1), whatever
was written before.
"""

import codecs

from outdraft.codecs.codec import TextualCodec


class TextStream:
    """Incremental `codec.decode(ids, continues=continues)`."""

    def __init__(self, codec: TextualCodec, *, continues: bool = True) -> None:
        self._codec = codec
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")
        self._strip = codec.strips_space and not continues

    def push(self, token: int) -> str:
        """The text that this token completes; empty while a character is incomplete."""
        piece = self._bytes.decode(self._codec.token_bytes(token))
        if self._strip and piece:
            self._strip, piece = False, piece.removeprefix(" ")
        return piece

    def finish(self) -> str:
        """What is left at the end: U+FFFD for an incomplete character, else nothing."""
        return self._bytes.decode(b"", final=True)
