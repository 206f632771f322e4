"""The library llguidance (https://github.com/guidance-ai/llguidance), imported where a request first asks for it."""

from types import MappingProxyType
from typing import Any

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
