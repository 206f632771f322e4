"""A trace: what was asked of an engine and when, and what every pass took. `outdraft replay` runs it again.

    with record_trace(llm, "monday.jsonl"):
        ...                                 requests, from any thread

One JSON object a line; times are seconds since the recording began:

    {"outdraft_trace": 1, "model": ..., "max_num_seqs": ..., "capacity": pages or null, ...}
    {"at": 0.31, "asks": 7, "prompt": 120, "most": 64, "priority": 0, "timeout": null}
    {"at": 0.35, "seconds": 0.02, "rows": [[7, certain, nodes, tokens, before], ...]}
    {"at": 0.41, "slice": 0.01}
    {"at": 1.90, "ends": 7, "reason": "stop"}

A request asks when its caller does, so its line may stand behind that of a pass which was over later. `most`: tokens
that it may write. `certain`: prompt rows of the request in this pass; `nodes`: those of its draft, pending token
included; `before`: those that the cache held; `tokens`: how many it emitted. The reason of a request that might not
wait is "refused". A slice is of a prompt's pass that stops between layers: the pass has a line of its own when it is
over. No text is written, and no token.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outdraft.core.cache import PAGE
from outdraft.core.decisions import Decisions
from outdraft.core.events import StepEvent
from outdraft.core.sequence import Sequence
from outdraft.engine.between_steps import listen
from outdraft.engine.loop import Engine
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path

if TYPE_CHECKING:
    from outdraft.engine.llm import LLM


class Tracer:
    """Hears what an engine does (`Engine.watch`), and has `put` write it down, a line each; `began`: by its clock."""

    def __init__(
        self, put: Callable[[dict[str, Any]], None], engine: Engine, config: Mapping[str, Any], began: float
    ) -> None:
        self._put, self._began = put, began
        self._known: set[int] = set()
        self._slices: dict[int, float] = {}  # seconds of a chunk that is under way
        room = engine.parts.room
        pages = None if room.capacity is None else room.capacity // PAGE
        put(
            {"outdraft_trace": 1, "model": config["model"], "drafter": config["drafter"]["name"]}
            | asdict(engine.scheduler.settings)
            | {"capacity": pages, "mixes": room.mixes, "slices": room.slices}
        )

    def asked(self, seq: Sequence, now: float) -> None:
        """Its sizes and its limits are written, and nothing of its text. It asked when its caller did, not now."""
        self._known.add(seq.id)
        at, request = now if seq.asked_at is None else seq.asked_at, seq.request
        line = {"asks": seq.id, "prompt": seq.prompt_len, "most": seq.room}
        self._put(
            {"at": max(0.0, at - self._began)} | line | {"priority": request.priority, "timeout": request.timeout}
        )

    def refused(self, seq: Sequence, now: float) -> None:
        """It is written as a request that ended at once."""
        self.asked(seq, now)
        self._end(seq, now, "refused")

    def passed(self, decisions: Decisions, events: Seq[StepEvent], now: float, seconds: float) -> None:
        """A pass is over; sequences that the recording began too late for are counted too.

        Of a pass in slices each slice has a line, and the pass has the seconds of all.
        """
        first, at = decisions.each[0].seq_id, now - self._began
        if not events:
            self._slices[first] = self._slices.get(first, 0.0) + seconds
            self._put({"at": at, "slice": seconds})
            return
        seconds += self._slices.pop(first, 0.0) if len(events) == 1 else 0.0
        rows = [
            [one.seq_id, event.num_certain, event.num_nodes, len(event.tokens), one.start]
            for one, event in zip(decisions.each, events, strict=True)
        ]
        self._put({"at": at, "seconds": seconds, "rows": rows})

    def ended(self, seq: Sequence, now: float) -> None:
        self._slices.pop(seq.id, None)
        self._end(seq, now, seq.finish_reason)

    def _end(self, seq: Sequence, now: float, reason: str | None) -> None:
        if seq.id in self._known:
            self._known.discard(seq.id)
            self._put({"at": now - self._began, "ends": seq.id, "reason": reason})


@contextmanager
def record_trace(llm: "LLM", path: str | Path) -> Iterator[None]:
    """Write a trace of all that is asked of `llm` in this block. Raises `ConfigError` where the file cannot be made."""
    errors: list[OSError] = []
    try:
        file = user_path(path).open("w", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"trace {path} cannot be written: {error}; name a file in a directory that exists") from error

    def put(line: dict[str, Any]) -> None:
        rounded = {key: round(value, 6) if isinstance(value, float) else value for key, value in line.items()}
        try:
            if not errors:
                file.write(json.dumps(rounded, separators=(",", ":")) + "\n")
        except OSError as error:  # requests go on; the `with` block says it
            errors.append(error)

    def begin(engine: Engine) -> Tracer:
        if any(isinstance(one, Tracer) for one in engine.watch.each):
            raise ConfigError("this LLM is being recorded already: end the other recording first")
        return Tracer(put, engine, llm.config, engine.clock())

    with file:
        end = listen(llm, begin)
        try:
            yield
        finally:
            end()
            if errors:
                raise ConfigError(f"trace {path} is not whole: {errors[0]}")
