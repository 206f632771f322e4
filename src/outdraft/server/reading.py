"""Texts of requests are read beside the event loop; long ones one after another, and those that cannot fit not at all.

A tokenizer takes hundreds of megabytes for a text of some megabytes, so that a few at once could take all memory. Large
replies are written in the same turn.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from outdraft.codecs.text import TextCodec
from outdraft.codecs.tokenizer_file import SHRINKS
from outdraft.server.errors import TOO_LONG, wrong_field

T = TypeVar("T")
_SURE = 1 << 14  # characters; a shorter text is read
_LONG = 1 << 17  # bytes of a body, or characters of a text
_FEW = 1 << 11  # tokens and log probabilities, which are written in some milliseconds


class LongTexts:
    """One for a server. `max_len`: tokens that the context holds."""

    def __init__(self, max_len: int) -> None:
        self._max_len = max_len
        self._slowly = ThreadPoolExecutor(1, "outdraft-long-texts")  # one thread, so that its memory is used again

    async def read(self, size: int, work: Callable[..., T], *given: Any) -> T:
        """The result of `work`, which reads a body of `size` bytes."""
        if size < _LONG:
            return await asyncio.to_thread(work, *given)
        return await asyncio.get_running_loop().run_in_executor(self._slowly, work, *given)

    async def write(self, size: int, work: Callable[..., T], *given: Any) -> T:
        """The result of `work`, which writes so many tokens and log probabilities; few are written at once."""
        if size < _FEW:
            return work(*given)
        return await asyncio.get_running_loop().run_in_executor(self._slowly, work, *given)

    def is_long(self, text: str) -> bool:
        """Whether it is read in its turn, or perhaps not at all."""
        return len(text) >= _SURE

    def check(self, text: str, codec: TextCodec | None, param: str) -> None:
        """Raise `ApiError` for a text that the context cannot hold, however it is read."""
        if len(text) < _SURE or codec is None or not codec.spells_all:
            return
        if (least := fewest_tokens(len(text), codec.longest_token)) >= self._max_len:
            raise wrong_field(
                f"the prompt has {len(text)} characters, which are {least} tokens at least, and the context holds "
                f"{self._max_len}: shorten the prompt",
                param,
                code=TOO_LONG,
            )


def fewest_tokens(num_characters: int, longest_token: int) -> int:
    """A lower bound, for a tokenizer that `spells_all`. `longest_token`: in bytes."""
    return -(-num_characters // (longest_token * SHRINKS))
