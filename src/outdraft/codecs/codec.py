"""What every codec offers: text to ids, ids to text, and the bytes of one token, which is what streaming is made of."""

from collections.abc import Iterable
from typing import Protocol


class Codec(Protocol):
    """Text to ids and back. `decode` is the UTF-8 reading of the tokens' bytes laid end to end.

    Because of that, a text can be decoded token by token (`codecs.stream`) and equals the decoded whole.
    """

    vocab_size: int
    eos_token_ids: frozenset[int]
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
