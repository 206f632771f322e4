"""What a codec offers: the engine sees only ids, and a codec says what they stand for.

`Codec` is all that the engine asks of any of them, of text, pixels or sound: which ids end an answer, and a stream that
reads an answer id by id. `TextualCodec` is what drafters between two vocabularies, prompts and tests ask of text.
"""

from collections.abc import Iterable
from typing import Protocol


class Stream(Protocol):
    """One answer as it is read, id by id. The pieces join to the whole; a piece may be empty."""

    def push(self, token: int) -> str:
        """What this token completes, for a person to see."""
        ...

    def finish(self) -> str:
        """What is left when the answer has ended."""
        ...


class Codec(Protocol):
    """Ids and what they stand for."""

    vocab_size: int
    eos_token_ids: frozenset[int]

    def stream(self, *, continues: bool = True) -> Stream:
        """A reader of one answer. `continues`: the ids follow others, as an answer follows its prompt."""
        ...


class TextualCodec(Codec, Protocol):
    """Text to ids and back. `decode` is the UTF-8 reading of the tokens' bytes laid end to end.

    Because of that, a text can be decoded token by token (`codecs.stream`) and equals the decoded whole.
    """

    strips_space: bool  # the first token of a text carries a space that is not part of the text

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """Ids of `text`, after the start token if the model wants one and `add_special`."""
        ...

    def decode(self, ids: Iterable[int], *, continues: bool = False) -> str:
        """Text of `ids`, special tokens left out. `continues`: the ids follow other text, so a leading space stays."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """The bytes that one token adds; empty for special tokens and for ids that no text has."""
        ...
