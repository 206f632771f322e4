"""One request's output as it is written: ids to text, stop strings, statistics, and the pieces a stream hands out.

The engine tells `find_stop` every emitted token in order, inside an accepted run too, so a stop string cuts the run at
the right token; the event of the whole step follows. Text that may still turn out to begin a stop string is held back.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from outdraft.codecs.codec import Codec
from outdraft.codecs.stream import StopStrings, TextStream
from outdraft.core.errors import RequestError
from outdraft.core.events import Source, StepEvent
from outdraft.core.logprobs import TokenLogprobs
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.engine.stats import RequestStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """What one step added. `text` may lag behind `token_ids` (half a character, a possible stop string)."""

    text: str
    token_ids: tuple[int, ...] = ()
    sources: tuple[Source, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: str | None = None
    stats: RequestStats | None = field(default=None, repr=False)  # of the whole text, on its last chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A finished request. `sources[i]` says where `token_ids[i]` came from; ids include the one that ended the text."""

    text: str
    token_ids: tuple[int, ...]
    prompt_token_ids: tuple[int, ...]
    sources: tuple[Source, ...]
    logprobs: tuple[TokenLogprobs, ...] | None  # None unless asked for
    finish_reason: str | None  # "stop", "length" or "cancelled"
    variant: str  # how the weights were rounded that wrote it: "", "int4-g32-mixed", ...
    lossless: bool  # whether its law is the target's: False under a lossy verifier
    stats: RequestStats = field(repr=False)

    @property
    def metrics(self) -> dict[str, Any]:
        """`stats` in the shape that vLLM's users know."""
        return self.stats.as_metrics()


class Writer:
    """Collects one request's events. `seq` is set by whoever queues the request."""

    seq: Sequence

    def __init__(self, request: Request, codec: Codec | None, *, lossless: bool) -> None:
        if request.params.stop and codec is None:
            raise RequestError(
                f"stop={request.params.stop!r} needs a tokenizer, and the model has none: use stop_token_ids"
            )
        self.request = request
        self.lossless = lossless
        self.chunks: deque[Chunk] = deque()
        self.stats = RequestStats()
        self._stream = TextStream(codec) if codec is not None else None
        self._stops = StopStrings(request.params.stop)
        self._text = ""
        self._shown = 0
        self._sources: list[Source] = []
        self._logprobs: list[TokenLogprobs] = []

    @property
    def finished(self) -> bool:
        """Whether the text has ended."""
        return self.seq.finish_reason is not None

    def find_stop(self, token: int) -> bool:
        """Take one emitted token's text; true if it completes a stop string."""
        return self._take(self._stream.push(token) if self._stream is not None else "")

    def push(self, event: StepEvent) -> None:
        """The step that emitted those tokens."""
        self.stats.add(event)
        self._sources += event.sources
        self._logprobs += event.logprobs
        if event.finish_reason is not None and self._stream is not None and self._stops.stop is None:
            self._take(self._stream.finish())
        if event.tokens:
            text = self._new_text(final=event.finish_reason is not None)
            self.chunks.append(
                Chunk(
                    text=text, token_ids=event.tokens, sources=event.sources, logprobs=event.logprobs,
                    finish_reason=event.finish_reason,
                    stats=self.stats if event.finish_reason is not None else None,
                )
            )  # fmt: skip

    def result(self) -> Result:
        """Everything written so far."""
        return Result(
            text=self._text,
            token_ids=tuple(self.seq.output),
            prompt_token_ids=self.request.prompt_token_ids,
            sources=tuple(self._sources),
            logprobs=tuple(self._logprobs) if self.request.params.logprobs is not None else None,
            finish_reason=self.seq.finish_reason,
            variant=self.seq.variant,
            lossless=self.lossless,
            stats=self.stats,
        )

    def _take(self, piece: str) -> bool:
        self._text += piece
        stop = self._stops.push(piece)
        if stop is not None:
            self._text = self._text[: stop.offset]
        return stop is not None

    def _new_text(self, *, final: bool) -> str:
        end = len(self._text) - (0 if final else self._stops.held)
        text, self._shown = self._text[self._shown : end], end
        return text
