"""The library llguidance (https://github.com/guidance-ai/llguidance), imported where a request first asks for it, and a
codec's tokens as it sees them: the bytes of each, and how forced text is cut into tokens.

    id                0 .. n-1 the codec's tokens                        n
    bytes of each     b"" for special tokens and ends: never text        b"", the library's own end of text

What ends a text is not left to the library: the ends of the engine are allowed where the grammar may end
(`grammar/constraint.py`), whatever the tokenizer calls its own.
"""

from collections.abc import Set
from types import MappingProxyType
from typing import Any

from outdraft.codecs.codec import TextualCodec
from outdraft.options.errors import RequestError

LIMITS = MappingProxyType(  # the library's own; one mask within them takes milliseconds at the very most
    {
        "initial_lexer_fuel": 100_000,  # of compiling: about 50 in a microsecond
        "max_grammar_size": 2_000,  # symbols: with more of them compiling takes a second and longer
        "max_items_in_row": 1_200,  # ways to read the text that are open at once: work grows with their square
        "step_max_items": 2_500,  # such ways of one mask: 0.5 to 2 in a microsecond; JSON, SQL and C need below 1,000
        "step_lexer_fuel": 200_000,  # of one mask: about 14 in a microsecond
        "max_lexer_states": 20_000,  # that one text may meet: 1 to 2 kB each
        "precompute_large_lexemes": False,
        "verbose_errors": False,
    }
)
_BEFORE = "\n"  # stands before a text that goes on, for tokenizers that put a space before whatever comes first


def llguidance() -> Any:
    """The module. Raises `RequestError` with the cure where it is not installed."""
    try:
        import llguidance
    except ImportError as error:
        raise RequestError(
            "structured_outputs needs llguidance, which is not installed: pip install 'outdraft[structured]'"
        ) from error
    return llguidance


def first_line(error: str) -> str:
    """What the library says went wrong, without its state."""
    lines = [line.strip() for line in error.splitlines() if line.strip() and line[0] != "<"]
    return " ".join(lines)[:300] or "no reason is given"


class Vocabulary:
    """What `llguidance.TokenizerWrapper` asks of a tokenizer."""

    bos_token_id = None

    def __init__(self, codec: TextualCodec, num_tokens: int, ends: Set[int]) -> None:
        """`num_tokens`: ids from 0 on that may be text, at most the model's rows."""
        self._codec = codec
        self.eos_token_id = num_tokens
        silent = {*ends, *getattr(codec, "special_ids", ())}
        self.tokens = [b"" if i in silent else codec.token_bytes(i) for i in range(num_tokens)] + [b""]
        self.special_token_ids = [num_tokens]

    def __call__(self, text: str | bytes) -> list[int]:
        """The tokens that the tokenizer makes of a text in the middle of another; none if it cannot.

        It raises nothing, for the library would take that for a fault of its own.
        """
        try:
            return self._cut(text if isinstance(text, str) else text.decode("utf-8", "ignore"))
        except Exception:  # of any tokenizer
            return []

    def _cut(self, text: str) -> list[int]:
        if not self._codec.strips_space:
            return self._spelt(self._codec.encode(text, add_special=False), text)
        ids = self._codec.encode(_BEFORE + text, add_special=False)
        for start in range(1, 4):
            if b"".join(self.tokens[i] for i in ids[:start]).lstrip(b" ") == _BEFORE.encode():
                return self._spelt(ids[start:], text)
        return []

    def _spelt(self, ids: list[int], text: str) -> list[int]:
        """The ids, if their bytes are the text's."""
        last = len(self.tokens)
        whole = all(i < last for i in ids) and b"".join(self.tokens[i] for i in ids) == text.encode()
        return ids if whole else []


def make_tokenizer(vocabulary: Vocabulary) -> Any:
    """The library's tree of all tokens: a second or less for 150,000 of them."""
    library = llguidance()
    return library.LLTokenizer(library.TokenizerWrapper(vocabulary), n_vocab=len(vocabulary.tokens))
