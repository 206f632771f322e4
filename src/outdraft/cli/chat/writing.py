"""An answer as it is written to the terminal: Markdown, drawn while it streams, or the text as it comes.

    finished blocks      printed once, and never touched again
    the last block       drawn anew with each piece, at most twenty times a second; of a long one the last lines

A line break stays one, and HTML is text: what the model wrote is shown. No terminal gets the text as it is.
"""

from itertools import pairwise
from time import perf_counter
from typing import ClassVar, Self

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Heading, Markdown
from rich.segment import Segment
from rich.text import Text

from outdraft.cli.console import has_style

_REDRAW = 0.05  # seconds between two drawings, at least


def answer_writer(console: Console, *, colour: bool) -> "MarkdownWriter | PlainWriter":
    """Markdown on a terminal; the text as it comes, painted, with colours of its own or where there is none.

    Used in a `with` block, at whose end all is written.
    """
    drawn = not colour and has_style(console) and not console.is_dumb_terminal
    return MarkdownWriter(console) if drawn else PlainWriter(console)


class PlainWriter:
    """The text as it comes."""

    def __init__(self, console: Console) -> None:
        self._console, self._is_empty = console, True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_empty:
            self._console.print()

    def add(self, painted: Text) -> None:
        self._is_empty = False
        self._console.print(painted, end="", soft_wrap=True)
        self._console.file.flush()


class MarkdownWriter:
    """Markdown, block by block."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(
            console=console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="visible",
        )
        self._parser = _parser()
        self._rest = ""  # what is not printed for good
        self._drawn, self._is_first = 0.0, True

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._draw()
        self._live.update(_Block(self._rest, is_first=self._is_first))
        self._live.stop()  # which draws it, once: of what is higher than the screen nothing can be taken back

    def add(self, painted: Text) -> None:
        self._rest += painted.plain
        now = perf_counter()
        if now - self._drawn >= _REDRAW:
            self._draw()
            self._drawn = now

    def _draw(self) -> None:
        """Print all blocks before the last one, which nothing can change any more; of that one draw what fits."""
        starts = [one.map[0] for one in self._parser.parse(self._rest) if one.map and not one.level]
        lines, finished = self._rest.splitlines(keepends=True), []
        for begin, end in pairwise(starts):
            finished.append(_Block("".join(lines[begin:end]), is_first=self._is_first))
            self._is_first = False
        self._rest = "".join(lines[starts[-1] :]) if starts else self._rest
        most = max(1, self._console.height - 1)
        self._live.update(_Block(self._rest, is_first=self._is_first, most=most), refresh=not finished)
        if finished:
            self._console.print(*finished, sep="", end="")


class _Heading(Heading):
    LEVEL_ALIGN = dict.fromkeys(Heading.LEVEL_ALIGN, "left")  # type: ignore[arg-type]


def _parser() -> MarkdownIt:
    return MarkdownIt().enable(["strikethrough", "table"]).disable(["html_block", "html_inline", "reference"])


class _Shown(Markdown):
    """rich's, with headings on the left, addresses written out, breaks kept, and HTML as text."""

    elements: ClassVar = {**Markdown.elements, "heading_open": _Heading}

    def __init__(self, text: str) -> None:
        super().__init__("", code_theme="ansi_dark", hyperlinks=False)
        self.markup, self.parsed = text, _parser().parse(text)
        for inline in (child for token in self.parsed for child in token.children or ()):
            if inline.type == "softbreak":
                inline.type = "hardbreak"


class _Block:
    """A blank line, but not before the first, and the lines of Markdown; of those at most the last `most`."""

    def __init__(self, text: str, *, is_first: bool, most: int | None = None) -> None:
        self._shown, self._is_first, self._most = _Shown(text), is_first, most

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._shown, options, pad=False)
        filled = [place for place, line in enumerate(lines) if "".join(one.text for one in line).strip()]
        if not filled:
            return
        kept = [*([] if self._is_first else [[]]), *lines[filled[0] : filled[-1] + 1]]
        for line in kept if self._most is None else kept[-self._most :]:
            yield from (*line, Segment.line())
