"""The colours of a streamed text: which characters came from which kind of token.

A chunk's text lags behind its tokens (half a character, a possible stop string). So tokens are decoded here once more,
and each chunk takes as many characters as it shows: chunk -> [(text, source)], which join to the chunk's text.
"""

from collections import deque
from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from rich.text import Text

from outdraft.cli.console import STYLES
from outdraft.codecs.codec import Codec
from outdraft.core.events import Source

if TYPE_CHECKING:
    from outdraft.engine.callers.result import Chunk


class Colours:
    """Follows one stream and colours each token by where it came from."""

    def __init__(self, codec: Codec) -> None:
        self._stream = codec.stream()
        self._waiting: deque[tuple[str, Source]] = deque()  # one character each
        self._last = Source.PLAIN

    def take(self, chunk: "Chunk") -> list[tuple[str, Source]]:
        """The chunk's text in runs of one source."""
        for token, source in zip(chunk.token_ids, chunk.sources, strict=True):
            self._last = source
            self._waiting.extend((character, source) for character in self._stream.push(token))
        shown = [self._waiting.popleft() if self._waiting else (c, self._last) for c in chunk.text]
        return [("".join(c for c, _ in run), source) for source, run in groupby(shown, key=lambda pair: pair[1])]


class Laid:
    """Lays the tokens that a server gives along the text that it shows, which may be shorter: the marks around thoughts
    are taken out, and a token that is not shown whole waits for the rest of it."""

    def __init__(self) -> None:
        self._rest = ""  # shown, and without a token
        self._waiting: deque[tuple[str, Source]] = deque()

    def take(self, shown: str, tokens: Iterable[tuple[str, Source]]) -> list[tuple[str, Source]]:
        """What is certain of the text so far."""
        self._rest += shown
        self._waiting.extend(tokens)
        found = []
        while self._waiting:
            text, source = self._waiting[0]
            if self._rest.startswith(text):
                self._rest = self._rest[len(text) :]
                found.append((text, source))
            elif text.startswith(self._rest):
                break  # the rest of it is held back
            self._waiting.popleft()  # laid, or never shown
        return found if self._waiting else [*found, *self.finish()]

    def finish(self) -> list[tuple[str, Source]]:
        """What is left when nothing more comes: a part of a token, or text that no token was given for."""
        rest, self._rest = self._rest, ""
        source = next((source for text, source in self._waiting if rest and text.startswith(rest)), Source.PLAIN)
        self._waiting.clear()
        return [(rest, source)] if rest else []


def paint(runs: Iterable[tuple[str, Source]], *, marks: bool = False) -> Text:
    """Runs as coloured text. `marks`: where there are no colours, [accepted drafts] stand in brackets instead."""
    painted = Text()
    for text, source in runs:
        bracketed = f"[{text}]" if marks and source == Source.ACCEPTED else text
        painted.append(bracketed, style=STYLES[source])
    return painted
