"""One size of one subject: sent, and what the neighbour felt beside what harmless requests of equal cost make it feel.

A quick look says whether anything was felt at all. Where it was, attack and harmless load take turns, several times,
and the gaps of all turns are compared. What is too much must be so in each of three such rounds, of which the mildest
is reported: a machine that stalls is not taken for a fault.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.abuse.ask import Asked
from lab.abuse.harmless import plain
from lab.abuse.look import Seen, quantile
from lab.abuse.stand import Stand

MOST_RATIO = 3.0
MOST_GROWTH = 200 << 20  # bytes that may stay
_QUICK, _TURN = 0.25, 1.0  # seconds of a look
_TURNS = 3
_ROUNDS = 3
_FELT = 2.5  # times the harmless gap, from which a quick look is not enough
_LEAST_GAP = 0.004  # seconds: shorter ones are the clock's and the machine's
_FALLS = 3.0  # seconds in which memory must have fallen again


@dataclass(slots=True)
class Harm:
    """What harmless loads made the neighbour feel, by texts and tokens, as last measured."""

    known: dict[tuple[int, int], float] = field(default_factory=dict)

    async def p99(self, stand: Stand, cpu: float, texts: int) -> float:
        key = _bucket(stand, cpu, texts)
        if key not in self.known:
            self.known[key] = (await _harmless(stand, key, 2 * _TURN)).p99
        return self.known[key]


async def compare(
    stand: Stand, harm: Harm, asked: Asked, texts: int, *, deadline: float, lock: Path | None
) -> dict[str, Any]:
    """The row of one size, without its size."""
    seen = await stand.watcher.look([asked], _QUICK, deadline)
    row = _row(seen)
    if not stand.served.is_alive:
        return {**row, "fault": "the server has ended"}
    if seen.reply.is_late:
        row["late"] = True
    ratio = _ratio(seen.p99, await harm.p99(stand, seen.cpu, texts))
    if ratio > _FELT:
        with held(lock):
            row |= await _mildest(stand, asked, seen.cpu, texts, deadline)
    else:
        row |= {"ratio": ratio}
    if seen.reply.is_late and stand.served.is_alive:
        await stand.rest()
    grown = await stand.watcher.after(seen.before, MOST_GROWTH, _FALLS) - seen.before
    return {**row, "kept_mib": round(grown / 2**20, 1)}


async def _mildest(stand: Stand, asked: Asked, cpu: float, texts: int, deadline: float) -> dict[str, Any]:
    rounds: list[dict[str, Any]] = []
    while len(rounds) < _ROUNDS and all(one["ratio"] >= MOST_RATIO for one in rounds):
        rounds.append(await _in_turns(stand, asked, cpu, texts, deadline))
        if "fault" in rounds[-1]:
            return rounds[-1]
    return min(rounds, key=lambda one: float(one["ratio"]))


async def _in_turns(stand: Stand, asked: Asked, cpu: float, texts: int, deadline: float) -> dict[str, Any]:
    felt: list[float] = []
    plain_felt: list[float] = []
    for _ in range(_TURNS):
        seen = await stand.watcher.look([asked], _TURN, deadline)
        felt += seen.gaps
        if not stand.served.is_alive:
            return {"ratio": _ratio(seen.worst, 0.0), "fault": "the server has ended"}
        seconds = max(_TURN, seen.reply.seconds)
        plain_felt += (await _harmless(stand, _bucket(stand, cpu, texts), seconds)).gaps
    found, harmless = quantile(felt, 0.99), quantile(plain_felt, 0.99)
    return {"ratio": _ratio(found, harmless), "p99_ms": _ms(found), "harmless_p99_ms": _ms(harmless)}


async def _harmless(stand: Stand, key: tuple[int, int], seconds: float) -> Seen:
    texts, tokens = key
    return await stand.watcher.look([plain(tokens)] * texts, seconds, seconds)  # left when the time is over


def _bucket(stand: Stand, cpu: float, texts: int) -> tuple[int, int]:
    """Texts, and tokens of each, rounded to a power of 2 so that a load is measured once."""
    tokens = stand.harmless.tokens(cpu, texts)
    return 1 << (texts - 1).bit_length(), 1 << (tokens.bit_length() - 1)


def _ratio(felt: float, harmless: float) -> float:
    return round(max(felt, _LEAST_GAP) / max(harmless, _LEAST_GAP), 2)


def _row(seen: Seen) -> dict[str, Any]:
    return {
        "status": seen.reply.status,
        "said": seen.reply.said[:200],
        "faults": list(seen.reply.faults),
        "seconds": round(seen.reply.seconds, 4),
        "cpu": round(seen.cpu, 4),
        "count": seen.count,
        "p99_ms": _ms(seen.p99),
        "worst_ms": _ms(seen.worst),
        "rss_mib": seen.before >> 20,
        "peak_mib": (seen.peak - seen.before) >> 20,
        "kept_mib": round((seen.after - seen.before) / 2**20, 1),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 2)


@contextmanager
def held(lock: Path | None) -> Iterator[None]:
    """While this process alone measures on the machine. None: nothing is held."""
    if lock is None:
        yield
        return
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
