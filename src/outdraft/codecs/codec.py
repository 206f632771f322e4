"""What a codec offers: the engine sees only ids, and a codec says what they stand for.

`Codec[T]` is all that the engine asks of any of them: T is `str` for text, and may be an image, or sound. What text
alone has (stop strings, grammars, chat templates, log probabilities by name) is asked of a `TextualCodec`.
"""

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar, runtime_checkable

from outdraft.options.errors import RequestError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Stream(Protocol[T_co]):
    """One answer as it is read, id by id. The pieces join to the whole; a piece may be empty."""

    def push(self, token: int) -> T_co:
        """What this token completes, for a person to see."""

    def finish(self) -> T_co:
        """What is left when the answer has ended."""


@runtime_checkable
class Codec(Protocol[T]):
    """Ids and what they stand for."""

    encodes: type[T]  # what they stand for: `str` is text
    vocab_size: int
    eos_token_ids: frozenset[int]

    def encode(self, content: T, /) -> list[int]:
        """Ids of a prompt's content. Raises `RequestError` for what has none."""

    def decode(self, ids: Iterable[int], /) -> T:
        """The content that these ids stand for, also where an answer was cut short."""

    def stream(self, *, continues: bool = True) -> Stream[T]:
        """A reader of one answer. `continues`: the ids follow others, as an answer follows its prompt."""


class TextualCodec(Codec[str], Protocol):
    """Text to ids and back. `decode` is the UTF-8 reading of the tokens' bytes laid end to end.

    Because of that, a text can be decoded token by token (`codecs.stream`) and equals the decoded whole.
    """

    strips_space: bool  # the first token of a text carries a space that is not part of the text

    def encode(self, text: str, /, *, add_special: bool = True) -> list[int]:
        """Ids of `text`, after the start token if the model wants one and `add_special`."""

    def decode(self, ids: Iterable[int], /, *, continues: bool = False) -> str:
        """Text of `ids`, special tokens left out. `continues`: the ids follow other text, so a leading space stays."""

    def token_bytes(self, token: int) -> bytes:
        """The bytes that one token adds; empty for special tokens and for ids that no text has."""


def text_codec(codec: Codec[Any] | None, wanted: str) -> TextualCodec | None:
    """The codec of text, or None where there is none. `wanted`: what a request asks of it.

    Raises `RequestError` where the ids stand for something else.
    """
    if codec is None or codec.encodes is str:
        return codec  # type: ignore[return-value]
    raise RequestError(f"{wanted} is for text, and the model's codec is of {codec.encodes.__name__}: leave it out")
