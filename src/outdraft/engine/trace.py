"""A trace: what was asked of an engine and when, and what every pass took. `outdraft replay` runs it again.

    with record_trace(llm, "monday.jsonl"):
        ...                                 requests, from any thread

One JSON object a line; times are seconds since the recording began:

    {"outdraft_trace": 1, "model": ..., "max_num_seqs": ..., "capacity": pages or null, ...}
    {"at": 0.31, "asks": 7, "prompt": 120, "most": 64, "priority": 0, "timeout": null}
    {"at": 0.35, "seconds": 0.02, "cached": {"7": 64}, "rows": [[7, certain, nodes, tokens, before], ...]}
    {"at": 0.41, "slice": 0.01}
    {"at": 1.90, "ends": 7, "reason": "stop"}

A request asks when its caller does, so its line may stand behind that of a pass which was over later. `most`: tokens
that it may write. `certain`: prompt rows of the request in this pass; `nodes`: those of its draft, pending token
included; `before`: those that the cache held; `tokens`: how many it emitted. The reason of a request that might not
wait is "refused". A slice is of a prompt's pass that stops between layers: the pass has a line of its own when it is
over. No text is written, and no token.
"""

import json
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from outdraft.core.cache import PAGE
from outdraft.core.events import StepEvent
from outdraft.core.sequence import Sequence
from outdraft.engine.loop import Engine
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.options.paths import user_path

if TYPE_CHECKING:
    from outdraft.engine.llm import LLM


class TraceWriter:
    """Hears what an engine does (`Engine.watch`), and writes it down."""

    def __init__(self, file: IO[str], engine: Engine, config: Mapping[str, Any], began: float) -> None:
        self._file = file
        self._began = began
        self.error: OSError | None = None  # why nothing more is written
        self._known: set[int] = set()
        self._slices: dict[int, float] = {}  # seconds of a chunk that is under way
        self._untold: set[int] = set()  # of them, those that no pass has had yet
        capacity = engine.parts.room.capacity
        self._write(
            {"outdraft_trace": 1, "model": config["model"], "drafter": config["drafter"]["name"]}
            | asdict(engine.scheduler.settings)
            | {
                "capacity": None if capacity is None else capacity // PAGE,
                "mixes": engine.parts.room.mixes,
                "slices": engine.parts.room.slices,
            }
        )

    def asked(self, seq: Sequence, now: float) -> None:
        """Its sizes and its limits are written, and nothing of its text. It asked when its caller did, not now."""
        self._known.add(seq.id)
        self._untold.add(seq.id)
        request, at = seq.request, now if seq.asked_at is None else seq.asked_at
        self._write(
            {
                "at": max(0.0, at - self._began),
                "asks": seq.id,
                "prompt": seq.prompt_len,
                "most": seq.room,
                "priority": request.priority,
                "timeout": request.timeout,
            }
        )

    def refused(self, seq: Sequence, now: float) -> None:
        """It is written as a request that ended at once."""
        self.asked(seq, now)
        self._end(seq, now, "refused")

    def passed(self, seqs: Seq[Sequence], events: Seq[StepEvent], now: float, seconds: float) -> None:
        """A pass over these sequences is over; sequences that the recording began too late for are counted too.

        Of a pass in slices each slice has a line, and the pass has the seconds of all.
        """
        if not events:
            self._slices[seqs[0].id] = self._slices.get(seqs[0].id, 0.0) + seconds
            self._write({"at": now - self._began, "slice": seconds})
            return
        seconds += self._slices.pop(seqs[0].id, 0.0) if len(seqs) == 1 else 0.0
        own = {event.seq_id: event for event in events}
        rows = []
        for seq in seqs:
            if (event := own.get(seq.id)) is not None:
                kept = event.num_certain + len(event.tokens)
                base = max(0, seq.num_cached - kept)  # a pass may have read of its negative prompt alone
                rows.append([seq.id, event.num_certain, event.num_nodes, len(event.tokens), base])
        taken = {str(seq.id): seq.num_taken_over for seq in seqs if seq.id in self._untold and seq.num_taken_over}
        self._untold.difference_update(seq.id for seq in seqs)
        self._write({"at": now - self._began, "seconds": seconds, "cached": taken, "rows": rows})

    def ended(self, seq: Sequence, now: float) -> None:
        """A request is over, in whatever way."""
        self._slices.pop(seq.id, None)
        self._end(seq, now, seq.finish_reason)

    def _end(self, seq: Sequence, now: float, reason: str | None) -> None:
        if seq.id in self._known:
            self._known.discard(seq.id)
            self._untold.discard(seq.id)
            self._write({"at": now - self._began, "ends": seq.id, "reason": reason})

    def _write(self, line: Mapping[str, Any]) -> None:
        rounded = {key: round(value, 6) if isinstance(value, float) else value for key, value in line.items()}
        if self.error is None:
            try:
                self._file.write(json.dumps(rounded, separators=(",", ":")) + "\n")
            except OSError as error:  # requests go on; the `with` block says it
                self.error = error


@contextmanager
def record_trace(llm: "LLM", path: str | Path) -> Iterator[None]:
    """Write a trace of all that is asked of `llm` in this block. Raises `ConfigError` where the file cannot be made."""
    place = user_path(path)
    try:
        file = place.open("w", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"trace {path} cannot be written: {error}; name a file in a directory that exists") from error
    with file:

        def begin(engine: Engine) -> None:
            if any(isinstance(one, TraceWriter) for one in engine.watch.each):
                raise ConfigError("this LLM is being recorded already: end the other recording first")
            engine.watch.add(TraceWriter(file, engine, llm.config, engine.clock()))

        def end(engine: Engine) -> None:
            (writer,) = (one for one in engine.watch.each if isinstance(one, TraceWriter))
            engine.watch.remove(writer)
            if writer.error is not None:
                raise ConfigError(f"trace {path} is not whole: {writer.error}")

        llm._thread.ask(begin)
        try:
            yield
        finally:
            with suppress(CapabilityError):  # closed within the block: nothing more is asked of it
                llm._thread.ask(end)
