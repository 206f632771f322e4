"""A text as it is streamed: the colours of its characters by where their tokens came from, and its figures.

A chunk's text lags behind its tokens (half a character, a possible stop string). So tokens are decoded here once more,
and each chunk takes as many characters as it shows: chunk -> [(text, source)], which join to the chunk's text.
Figures are counted from chunks, too: one chunk is one target pass.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from time import perf_counter

from rich.console import Console
from rich.text import Text

from outdraft.cli.console import STYLES, say
from outdraft.codecs.codec import Codec
from outdraft.core.events import Source, StepEvent, StepTimes
from outdraft.engine.callers.result import Chunk
from outdraft.engine.stats import RequestStats


class Colours:
    """Follows one stream and colours each token by where it came from."""

    def __init__(self, codec: Codec[str]) -> None:
        self._stream = codec.stream()
        self._waiting: deque[tuple[str, Source]] = deque()  # one character each
        self._last = Source.PLAIN

    def take(self, chunk: Chunk) -> list[tuple[str, Source]]:
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


def painted(chunks: Iterable[Chunk], codec: Codec[str] | None) -> Iterator[tuple[Chunk, Text]]:
    """Each chunk beside its text in colours, which a codec tells."""
    colours = None if codec is None else Colours(codec)
    for chunk in chunks:
        yield chunk, Text(chunk.text) if colours is None else paint(colours.take(chunk))


class Tally:
    """Feeds a `RequestStats`, and looks at the clock. The engine's own, given at the end, take their place."""

    def __init__(self) -> None:
        self._counted = RequestStats()
        self._told: RequestStats | None = None
        self._began = self._last = perf_counter()
        self._first: float | None = None
        self.finish_reason: str | None = None

    @property
    def stats(self) -> RequestStats:
        return self._counted if self._told is None else self._told

    def add(self, chunk: Chunk) -> None:
        accepted = sum(source == Source.ACCEPTED for source in chunk.sources)
        rejected = Source.RECOVERED in chunk.sources
        now = perf_counter()
        self._counted.add(
            StepEvent(
                seq_id=0,
                tokens=chunk.token_ids,
                num_draft_tokens=accepted + rejected,
                num_accepted=accepted,
                rejected=rejected,
                times=StepTimes(rest=now - self._last),
            )
        )
        self._told, self.finish_reason = chunk.stats or self._told, chunk.finish_reason or self.finish_reason
        self._last = now
        self._first = now if self._first is None else self._first

    def show(self, console: Console) -> None:
        say(console, str(self.stats))
        first = [f"the first token after {self._first - self._began:.2f} s"] if self._first is not None else []
        rates = " ".join(f"{rate:.2f}" for rate in self._counted.acceptance_by_position)
        say(console, "; ".join([*first, *([f"accepted by position: {rates}"] if rates else [])]))


def write_stream(console: Console, pieces: Iterable[tuple[Chunk, Text]], *, colour: bool) -> Tally:
    """Write a text as it comes; its figures."""
    tally = Tally()
    for chunk, text in pieces:
        tally.add(chunk)
        if colour:
            console.print(text, end="", soft_wrap=True)
        else:
            console.out(chunk.text, end="", highlight=False)
        console.file.flush()
    console.out()
    return tally
