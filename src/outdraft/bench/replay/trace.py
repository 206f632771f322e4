"""Read a trace (`engine/trace.py`): the requests with what they did, the passes and the pauses with what they took."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from outdraft.bench.replay.costs import RecordedPass, work_of
from outdraft.bench.replay.pauses import Pause
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path

OPEN = "unfinished"  # the recording ended before the request did


@dataclass(slots=True, kw_only=True)
class TracedRequest:
    """One request, and what came of it. Times are seconds since the recording began."""

    id: int
    at: float  # when it was sent
    prompt: int  # tokens
    most: int | None = None  # tokens that it may write; None: as many as it wrote
    priority: int = 0
    timeout: float | None = None
    cached: int | None = None  # rows of its prompt that an earlier text had left; None: it was in no pass
    rounds: list[tuple[int, int]] = field(default_factory=list)  # (nodes, tokens) of each round that emitted
    first: float | None = None  # when its first token came
    end: float | None = None
    reason: str | None = None

    @property
    def num_tokens(self) -> int:
        return sum(tokens for _, tokens in self.rounds)

    def saw(self, nodes: int, tokens: int, before: int, at: float) -> None:
        """A pass, over at this time, in which it had so many rows and emitted so many tokens."""
        self.cached = before if self.cached is None else self.cached
        if tokens:
            self.rounds.append((nodes, tokens))
            self.first = at if self.first is None else self.first

    def sent(self, at: float) -> "TracedRequest":
        """The same request, sent at another time."""
        moved = at - self.at
        return replace(self, at=at, end=None if self.end is None else self.end + moved)

    @property
    def patience(self) -> float | None:
        """Seconds after which it is taken back, whatever it has written by then; None: it ends by itself."""
        is_taken_back = self.reason in ("cancelled", OPEN) or (self.reason == "error" and not self.rounds)
        return None if self.end is None or not is_taken_back else self.end - self.at


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What was recorded. `setup`: the first line."""

    setup: dict[str, Any]
    requests: list[TracedRequest]
    passes: list[RecordedPass]
    pauses: list[Pause]


def read_trace(path: str | Path) -> Trace:
    """Raises `ConfigError` for a file that is no trace; a last line that was cut off is left out."""
    try:
        lines = user_path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"trace {path} cannot be read: {error}") from error
    told: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            told.append(json.loads(line))
        except ValueError as error:
            if number == len(lines):
                break
            raise ConfigError(f"trace {path}, line {number} is no JSON object: {error}") from error
    if not told or not isinstance(told[0], dict) or told[0].get("outdraft_trace") != 1:
        raise ConfigError(f"{path} is no trace: make one with outdraft.record_trace(llm, FILE)")
    try:
        return read_lines(told)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"trace {path} is damaged: {error!r} is missing or wrong in a line") from error


def read_lines(told: list[dict[str, Any]]) -> Trace:
    """A trace from its lines."""
    requests: dict[int, TracedRequest] = {}
    passes: list[RecordedPass] = []
    pauses: list[Pause] = []
    open_ids: set[int] = set()
    free = 0.0  # since when the engine could have begun a pass
    is_awake, asked, ended = False, 0, 0  # since the last pass
    for line in told[1:]:
        at = float(line["at"])
        if "asks" in line:
            number, known = line["asks"], {key: line[key] for key in ("prompt", "most", "priority", "timeout")}
            requests[number] = TracedRequest(id=number, at=at, **known)
            if not open_ids:
                free, is_awake = max(free, at), False
            open_ids.add(number)
            asked += 1
            continue
        if "ends" in line:
            requests[line["ends"]].end, requests[line["ends"]].reason = at, line["reason"]
            open_ids.discard(line["ends"])
            ended += 1
            continue
        if "rows" in line:
            passes.append(
                RecordedPass(work=work_of(row[1:3] + row[4:] for row in line["rows"]), seconds=line["seconds"])
            )
            if requests:  # else the recording began within
                pause = max(0.0, at - line["seconds"] - free)
                pauses.append(Pause(seconds=pause, is_awake=is_awake, num_asked=asked, num_ended=ended))
            for number, _, nodes, tokens, before in line["rows"]:
                if number in requests:
                    requests[number].saw(nodes, tokens, before, at)
        free, is_awake, asked, ended = at, True, 0, 0  # so it is after a slice
    for number in open_ids:
        requests[number].end, requests[number].reason = float(told[-1]["at"]), OPEN
    return Trace(setup=told[0], requests=list(requests.values()), passes=passes, pauses=pauses)
