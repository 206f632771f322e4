"""One request's output as it is written: ids to text, stop strings, statistics, and the pieces a stream hands out.

Where a request has stop strings, the engine gives `find_stops` every emitted token in order, inside an accepted run
too, so that a stop string cuts the run at the right token. All other text is made from the events, by the caller's own
thread. Text that may still turn out to begin a stop string is held back.
"""

from dataclasses import replace
from typing import Any

from outdraft.codecs.codec import Codec
from outdraft.codecs.stops import StopStrings, StopTable
from outdraft.core.draft_tree import DraftTree
from outdraft.core.events import Source, StepEvent
from outdraft.core.logprobs import TokenLogprobs
from outdraft.core.sequence import Sequence
from outdraft.engine.callers.result import Chunk, Result
from outdraft.engine.loop import Engine
from outdraft.engine.plain_pass import plain_pass
from outdraft.engine.stats import RequestStats
from outdraft.options.errors import OutdraftError


class Writer:
    """Makes text of one request's events, on its caller's side.

    `stops`: the table of the request's stop strings, if it has any. `stream_interval`: tokens of a chunk, the last one
    may have fewer; 0: each event makes a chunk. `engine`: its measurements serve an estimate.
    """

    def __init__(
        self,
        seq: Sequence,
        codec: Codec[Any] | None,
        stops: StopTable | None,
        *,
        lossless: bool,
        stream_interval: int = 0,
        engine: Engine | None = None,
    ) -> None:
        self.seq = seq
        self.lossless = lossless
        self.chunks: list[Chunk] = []
        self.stats = RequestStats()
        self.finish_reason: str | None = None
        self.error: OutdraftError | None = None
        self._interval, self._engine = stream_interval, engine
        self._stream = codec.stream() if codec is not None else None
        self._stops = None if stops is None else StopStrings(stops, seq.request.params.min_tokens)
        self._text = ""
        self._shown = self._told = 0  # characters and tokens that are in a chunk
        self._num_resumed = 0
        self._tells_prompt = seq.request.params.prompt_logprobs is not None  # which the next chunk is to do
        self._ids: list[int] = []
        self._sources: list[Source] = []
        self._logprobs: list[TokenLogprobs] = []
        self._prompt_logprobs: list[TokenLogprobs | None] = [None]
        self._variant = ""
        self._draft_tree: DraftTree | None = None
        if seq.num_output:
            self._resume(seq.output)

    @property
    def num_ids(self) -> int:
        """Tokens that it was given."""
        return len(self._ids)

    def push(self, event: StepEvent) -> None:
        self.stats.add(event)
        self._sources += event.sources
        self._logprobs += event.logprobs
        self._prompt_logprobs += event.prompt_logprobs
        self._variant = event.variant or self._variant  # an error from outside the engine names none
        if event.draft_tree is not None:
            self._draft_tree = replace(event.draft_tree, drafted_by=event.drafted_by)
        for token in event.tokens:
            if self._interval and len(self._ids) - self._told >= self._interval:
                self._tell()
            self._ids.append(token)
            if self._stream is not None and token not in self.seq.ends:
                self._take(self._stream.push(token))
        self.finish_reason, self.error = event.finish_reason, event.error
        if event.finish_reason is not None and self.stats.num_drafted_steps and self._engine is not None:
            self.stats.plain_pass = plain_pass(self._engine)
        is_cut = self._stops is not None and self._stops.stop is not None
        if self._stream is not None and event.finish_reason is not None and not is_cut:
            self._take(self._stream.finish())
        num_new = len(self._ids) - self._told
        if num_new >= (self._interval or 1) or (event.finish_reason is not None and (num_new or event.error is None)):
            self._tell()

    def _tell(self) -> None:
        """A chunk of all that is in none."""
        new, is_over = slice(self._told, len(self._ids)), self.finish_reason is not None
        of_prompt, self._tells_prompt = self._of_prompt() if self._tells_prompt else None, False
        own = slice(new.start - self._num_resumed, new.stop - self._num_resumed)  # what was not written elsewhere
        self._told = len(self._ids)
        self.chunks.append(
            Chunk(
                text=self._new_text(final=is_over),
                token_ids=tuple(self._ids[new]),
                sources=tuple(self._sources[new]),
                logprobs=tuple(self._logprobs[own]),
                finish_reason=None if self.error is not None else self.finish_reason,
                stop_reason=self._stop_reason(),
                stats=self.stats if is_over else None,
                speculative=self.seq.settled.told if is_over else None,
                prompt_logprobs=of_prompt,
                draft_tree=self._draft_tree,
            )
        )

    def result(self) -> Result:
        """Everything written so far."""
        request = self.seq.request
        return Result(
            text=self._text,
            token_ids=tuple(self._ids),
            prompt_token_ids=request.prompt_token_ids,
            sources=tuple(self._sources),
            logprobs=tuple(self._logprobs) if request.params.logprobs is not None else None,
            prompt_logprobs=self._of_prompt(),
            finish_reason=self.finish_reason,
            stop_reason=self._stop_reason(),
            error=self.error,
            variant=self._variant,
            lossless=self.lossless,
            stats=self.stats,
            speculative=self.seq.settled.told,
            num_cached_tokens=self.seq.num_taken_over,
            draft_tree=self._draft_tree,
        )

    def _resume(self, ids: list[int]) -> None:
        """It was written so far elsewhere, which is its first piece here; that costs no pass and has no statistics."""
        self._ids, self._sources = ids, [Source.RESUMED] * len(ids)
        self._told = self._num_resumed = len(ids)
        if self._stream is not None:
            for token in ids:
                self._take(self._stream.push(token))
        self.chunks.append(Chunk(text=self._new_text(final=False), token_ids=tuple(ids), sources=tuple(self._sources)))

    def _stop_reason(self) -> str | int | None:
        """What ended the text, where that is neither an end token nor a form that is complete."""
        if self.finish_reason != "stop":
            return None
        if self._stops is not None and self._stops.stop is not None:
            return self._stops.stop.text
        last = self._ids[-1]
        return last if last in self.seq.request.params.stop_token_ids else None

    def _of_prompt(self) -> tuple[TokenLogprobs | None, ...] | None:
        return tuple(self._prompt_logprobs) if self.seq.request.params.prompt_logprobs is not None else None

    def _take(self, piece: str) -> None:
        self._text += piece
        if self._stops is not None and (stop := self._stops.push(piece)) is not None:
            self._text = self._text[: stop.offset]

    def _new_text(self, *, final: bool) -> str:
        held = 0 if final or self._stops is None else self._stops.held
        end = len(self._text) - held
        text, self._shown = self._text[self._shown : end], end
        return text
