"""The only text that may follow, and the tokens that the tokenizer makes of it.

    allowed here      {   {"   {"na      each begins the longest: `{"na` is forced
    behind it         me  me"            forced again
    behind that       0 1 2 ...          a choice: the forced text ends before it

The library can force text by itself, but walks along all of it at once, however long it is (a million letters of
`x{1000000}`: seconds, and gigabytes). Here little more than `WINDOW` bytes are looked at. What may be joined with the
text behind a choice is left to the model, and so is what the window cuts off.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

WINDOW = 64  # bytes of forced text that are cut into tokens at once
_LOOKED_AT = 2 * WINDOW  # at once, so that it need not be done at each token


@dataclass(frozen=True, slots=True)
class ForcedText:
    """What must follow. `next_bytes`: what may stand behind it; None: it goes on, and was looked at no further."""

    data: bytes = b""
    next_bytes: frozenset[int] | None = None

    @property
    def is_known(self) -> bool:
        """Whether it has been looked at as far as a window."""
        return self.next_bytes is not None or len(self.data) > WINDOW

    def behind(self, start: bytes) -> "ForcedText":
        """What is left of it behind its beginning; nothing where it begins otherwise."""
        return ForcedText(self.data[len(start) :], self.next_bytes) if self.data.startswith(start) else ForcedText()


def look_ahead(
    tokens: Seq[bytes],
    few: Callable[[], Seq[int] | frozenset[int]],
    ends_behind: Callable[[int], bool],
    go_on: Callable[[Seq[int]], None],
) -> ForcedText:
    """What is forced from where the text stands.

    `few`: the ids that may follow; or, where these are many or the text may end, the bytes that they begin with.
    `ends_behind`: whether the text may end behind one of them. `go_on`: take some of them.
    """
    data = b""
    while len(data) < _LOOKED_AT:
        found = few()
        if isinstance(found, frozenset):
            return ForcedText(data, found)
        spellings = [tokens[i] for i in found]
        if not is_one_text(spellings):
            common = _common_start(min(spellings), max(spellings))
            rest = frozenset(one[len(common)] for one in spellings if len(one) > len(common))
            return ForcedText(data + common, rest)
        *shorter, longest = sorted(found, key=lambda i: len(tokens[i]))
        if (end := next(filter(ends_behind, shorter), None)) is not None:
            size = len(tokens[end])
            return ForcedText(data + tokens[end], frozenset(tokens[longest][size : size + 1]))
        data += tokens[longest]
        go_on([longest])
    return ForcedText(data)


def is_one_text(spellings: Seq[bytes]) -> bool:
    """Whether each of these begins the longest of them."""
    longest = max(spellings, key=len, default=b"")
    return bool(longest) and all(longest.startswith(one) for one in spellings)


def _common_start(one: bytes, other: bytes) -> bytes:
    size = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:size]


class TokenTable:
    """The bytes of all tokens, and how the tokenizer cuts forced text into them."""

    def __init__(self, tokens: Seq[bytes], cut: Callable[[str], list[int]]) -> None:
        """`cut`: the tokens that the tokenizer makes of a text in the middle of another; none if it cannot."""
        self.tokens = tokens
        self._cut = cut
        self._sorted = sorted(set(tokens))
        self._longest = max(map(len, tokens), default=0)
        self._first = torch.tensor([*b"".join(token[:1] or b"\0" for token in tokens)], dtype=torch.uint8)  # [V]

    def bytes_of(self, ids: Iterable[int]) -> bytes:
        """What these tokens spell."""
        return b"".join(self.tokens[i] for i in ids)

    def first_bytes(self, mask: Tensor) -> frozenset[int]:
        """What these tokens begin with. `mask`: [at most V] bool."""
        counts = torch.bincount(self._first[: len(mask)][mask], minlength=256)
        return frozenset(counts.nonzero().flatten().tolist())

    def spelt(self, before: int | None, text: ForcedText) -> list[int]:
        """The tokens of a forced text behind the token `before`, without those that may be joined with what follows."""
        if not text.is_known:
            return []
        data = text.data[:WINDOW]
        num_sure = len(data) - (WINDOW // 2 if len(text.data) > WINDOW else self._num_joined(text))
        whole = data.decode("utf-8", "ignore")
        if num_sure <= 0 or not data.startswith(whole.encode()):
            return []
        kept, size = [], 0
        for token in self._in_context(before, whole):
            size += len(self.tokens[token])
            if size > num_sure:
                break
            kept.append(token)
        return kept

    def _in_context(self, before: int | None, text: str) -> list[int]:
        """As they come behind `before`, if the tokenizer leaves that as it is; else as they come by themselves."""
        ahead = "" if before is None else self.tokens[before].decode("utf-8", "replace")
        joined = self._cut(ahead + text) if ahead and "\N{REPLACEMENT CHARACTER}" not in ahead else []
        return joined[1:] if joined and joined[0] == before else self._cut(text)

    def _num_joined(self, text: ForcedText) -> int:
        """Bytes at the end of the text that may be part of one token with what follows."""
        for size in range(min(len(text.data), self._longest - 1), 0, -1):
            end = text.data[-size:]
            if any(self._begins(end + bytes((one,))) for one in text.next_bytes or ()):
                return size
        return 0

    def _begins(self, start: bytes) -> bool:
        """Whether any token does so."""
        at = bisect_left(self._sorted, start)
        return at < len(self._sorted) and self._sorted[at].startswith(start)
