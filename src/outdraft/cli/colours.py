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
    from outdraft.engine.writer import Chunk


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


def paint(runs: Iterable[tuple[str, Source]], *, marks: bool = False) -> Text:
    """Runs as coloured text. `marks`: where there are no colours, [accepted drafts] stand in brackets instead."""
    painted = Text()
    for text, source in runs:
        bracketed = f"[{text}]" if marks and source == Source.ACCEPTED else text
        painted.append(bracketed, style=STYLES[source])
    return painted
