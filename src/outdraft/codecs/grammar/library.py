"""The library llguidance (https://github.com/guidance-ai/llguidance), imported where a request first asks for it."""

from typing import Any

from outdraft.core.errors import RequestError


def llguidance() -> Any:
    """The module. Raises `RequestError` with the cure where it is not installed."""
    try:
        import llguidance
    except ImportError as error:
        raise RequestError(
            "structured_outputs needs llguidance, which is not installed: pip install 'outdraft[structured]'"
        ) from error
    return llguidance
