"""Read a trace (`engine/trace.py`): the requests with what they did, and the passes with what they took."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outdraft.core.errors import ConfigError
from outdraft.core.paths import user_path


@dataclass(slots=True, kw_only=True)
class Asked:
    """One request, and what came of it. Times are seconds since the recording began."""

    id: int
    at: float
    prompt: int  # tokens
    priority: int = 0
    timeout: float | None = None
    cached: int = 0  # rows of its prompt that an earlier text had left
    rounds: list[tuple[int, int]] = field(default_factory=list)  # (nodes, tokens) of each round that emitted
    first: float | None = None  # when its first token came
    end: float | None = None
    reason: str | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens that the request wrote in all its rounds."""
        return sum(tokens for _, tokens in self.rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass. `before`: seconds since the one before, where the engine had work all the time."""

    seconds: float
    num_decoding: int  # sequences that read no prompt in it
    num_rows: int
    context: int  # sum over rows of how many rows their sequence had in the cache
    before: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What was recorded. `setup`: the first line."""

    setup: dict[str, Any]
    requests: list[Asked]
    passes: list[Pass]


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
        return _read(told)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"trace {path} is damaged: {error!r} is missing or wrong in a line") from error


def _read(told: list[dict[str, Any]]) -> Trace:
    requests: dict[int, Asked] = {}
    passes: list[Pass] = []
    last, is_busy = 0.0, False
    open_ids: set[int] = set()
    for line in told[1:]:
        at = float(line["at"])
        if "asks" in line:
            asked = Asked(
                id=line["asks"], at=at, prompt=line["prompt"], priority=line["priority"], timeout=line["timeout"]
            )
            requests[asked.id] = asked
            open_ids.add(asked.id)
        elif "ends" in line:
            requests[line["ends"]].end, requests[line["ends"]].reason = at, line["reason"]
            open_ids.discard(line["ends"])
        else:
            began = at - line["seconds"]
            passes.append(_pass(line, max(0.0, began - last) if is_busy else None))
            last = at
            _follow(line, at, requests)
        is_busy = bool(open_ids)
    return Trace(setup=told[0], requests=[one for one in requests.values() if one.rounds], passes=passes)


def _pass(line: dict[str, Any], before: float | None) -> Pass:
    rows = line["rows"]
    return Pass(
        seconds=line["seconds"],
        num_decoding=sum(not certain for _, certain, _, _, _ in rows),
        num_rows=sum(certain + nodes for _, certain, nodes, _, _ in rows),
        context=sum((certain + nodes) * (held + (certain + nodes) // 2) for _, certain, nodes, _, held in rows),
        before=before,
    )


def _follow(line: dict[str, Any], at: float, requests: dict[int, Asked]) -> None:
    for number, num_rows in line["cached"].items():
        if int(number) in requests:
            requests[int(number)].cached = num_rows
    for number, _, nodes, tokens, _ in line["rows"]:
        if tokens and number in requests:
            one = requests[number]
            one.rounds.append((nodes, tokens))
            one.first = at if one.first is None else one.first
