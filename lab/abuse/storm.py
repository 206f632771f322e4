"""Three servers under random abuse beside honest clients: `python -m lab.abuse.storm --minutes 30`.

A plain server, one with TLS, one with two keys; each may keep 64 MiB of keys and values, which are full before anything
is read, since what a server keeps by design is no growth. Windows take turns: one of abuse, and one, a quarter as long,
in which the abuser sends harmless requests as often; honest clients ask in both. Data out: a line for each window, and
at the end what memory, descriptors and threads have become. A run that is interrupted goes on with the next window.
Exit code 1 if a text was wrong or lost, if first tokens took twice as long as beside harmless requests, or if a server
did not come back to rest.
"""

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

from lab.abuse.ask import Asked
from lab.abuse.ask import ask as request
from lab.abuse.certificate import certified
from lab.abuse.honest import Honest
from lab.abuse.model import write_model
from lab.abuse.places import COMPLETIONS, PROMPT
from lab.abuse.record import Record
from lab.abuse.served import Served, readings
from lab.abuse.target import Target
from lab.abuse.verdict import MODES, verdict
from lab.soak_http.__main__ import rights_of
from lab.soak_http.asked import kinds, right
from lab.soak_http.run import Tally
from outdraft.engine.llm import LLM

KEYS = ("honest-key", "abusers-key")
_FLAGS = ("--tool-call-parser", "hermes", "--kv-cache-memory", "64MiB")
_HARMLESS = 0.25  # of the seconds, and of the requests, of a window of abuse
_WARM = 15.0  # seconds of honest clients alone before anything is read
_IDLE = 20.0  # seconds without a request before the last reading
_KINDS = 24
_FIRST: tuple[dict[str, Any], ...] = (
    {"prompt": "a " * 100_000},
    {"structured_outputs": {"regex": "[a-c]+"}},
    {"stop": ["q"]},
    {"structured_outputs": {"json": {"type": "object"}}},
    {"references": ["It was late. " * 1000]},
    *({"n": 32, "temperature": 1.0, "max_tokens": 600, "ignore_eos": True},) * 2,
)
_LATE = 400.0  # seconds beyond its window in which the abuser must answer


class Storm:
    """The servers, the abuser and the honest clients of one run."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        self._options, self._directory = options, directory
        self._held = AsyncExitStack()
        self.servers: dict[str, Served] = {}

    async def __aenter__(self) -> "Storm":
        options, directory = self._options, self._directory
        model = write_model(options.model, directory / "model")
        certificate, key = certified(directory)
        flags = {
            "plain": (),
            "tls": ("--ssl-certfile", str(certificate), "--ssl-keyfile", str(key)),
            "keys": tuple(word for one in KEYS for word in ("--api-key", one)),
        }
        for kind, more in flags.items():
            log = self._held.enter_context((directory / f"{kind}.log").open("ab"))
            served = Served(str(model), *_FLAGS, *more, log=log, key=KEYS[0] if kind == "keys" else None)
            self.servers[kind] = await self._held.enter_async_context(served)
        asked = kinds(Random(options.seed), _KINDS)
        with LLM(str(model), drafter="none") as plain:
            alone = [right(plain, kind) for kind in asked]
        tally = Tally()
        rights = await rights_of(self.servers["plain"].address, asked, alone, tally)
        if tally.wrong:
            raise RuntimeError(f"a text is wrong before anything has begun: {tally.wrong[0]}")
        self.honest = Honest(
            self._targets(KEYS[0]), asked, rights, count=options.clients, thinks=options.thinks, seed=options.seed
        )
        told = [{"kind": one.kind, "address": one.address, "headers": one.headers} for one in self._targets(KEYS[1])]
        words = ["-m", "lab.abuse.abuser", json.dumps(told), str(options.seed), str(options.share)]
        self._abuser = await asyncio.create_subprocess_exec(
            sys.executable, *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._abuser.returncode is None:
            self._abuser.kill()
        await self._abuser.wait()
        await self._held.aclose()

    def _targets(self, key: str) -> list[Target]:
        return [
            Target(kind=kind, address=one.address, headers={"Authorization": f"Bearer {key}"} if one.headers else {})
            for kind, one in self.servers.items()
        ]

    async def warm(self) -> None:
        """Honest clients alone, and what a server begins only when it is first asked: it is no growth."""
        for target in self._targets(KEYS[0]):
            for body in _FIRST:
                await request(target.address, Asked.post(COMPLETIONS, {**PROMPT, **body}, target.headers))
        await self.honest.window(_WARM)

    async def rest(self) -> None:
        """Wait, in turn, until each server has nothing under way; at most `_LATE` seconds in all."""
        end = monotonic() + _LATE
        for target in self._targets(KEYS[0]):
            while monotonic() < end and self.servers[target.kind].is_alive:
                reply = await request(target.address, Asked.get("/load", target.headers))
                if json.loads(reply.body or "{}").get("server_load") == 0:
                    break
                await asyncio.sleep(0.5)

    async def window(self, mode: str, seconds: float, first: int, count: int | None) -> dict[str, Any]:
        """One window: what honest clients got, what the abuser did, and what the servers hold."""
        abusing = asyncio.ensure_future(self._abuse({"mode": mode, "seconds": seconds, "from": first, "count": count}))
        served = await self.honest.window(seconds)
        told = await abusing
        dead = [kind for kind, one in self.servers.items() if not one.is_alive]
        return {
            "mode": mode,
            "seconds": seconds,
            "from": first,
            "honest": served.to_json(),
            "abuser": told,
            "servers": self.readings(),
            "dead": dead,
        }

    async def _abuse(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert self._abuser.stdin is not None and self._abuser.stdout is not None
        self._abuser.stdin.write(json.dumps(asked).encode() + b"\n")
        line = await asyncio.wait_for(self._abuser.stdout.readline(), asked["seconds"] + _LATE)
        return dict(json.loads(line))

    def readings(self) -> dict[str, Any]:
        """Of each server that lives."""
        return {kind: readings(one) for kind, one in self.servers.items() if one.is_alive}

    def log_sizes(self) -> dict[str, int]:
        """Bytes of each server's log."""
        return {kind: (self._directory / f"{kind}.log").stat().st_size for kind in self.servers}


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """The windows that the record does not have yet; the verdict on all."""
    names = ("model", "minutes", "window", "clients", "thinks", "share", "seed")
    record = Record(options.record, {name: getattr(options, name) for name in names})
    count = -(-int(options.minutes * 60) // int(options.window))
    while (done := sum(row["mode"] in MODES for row in record.rows)) < 2 * count:
        with tempfile.TemporaryDirectory(prefix="outdraft-storm-") as directory, _kept(options, Path(directory)):
            async with Storm(options, Path(directory)) as storm:
                await storm.warm()
                record.add({"mode": "begin", "servers": storm.readings(), "logs": storm.log_sizes()})
                for at in range(done, 2 * count):
                    last = next((row for row in reversed(record.rows) if row["mode"] == "abuse"), None)
                    seconds = options.window * (_HARMLESS if at % 2 else 1.0)
                    row = await storm.window(MODES[at % 2], seconds, *_what(at, last))
                    record.add(row)
                    _tell(f"window {at + 1} of {2 * count}: {_line(row)}")
                    if row["dead"]:
                        break
                    await storm.rest()
                await asyncio.sleep(_IDLE)
                live = {kind: (await _asked(one)) for kind, one in storm.servers.items() if one.is_alive}
                record.add({"mode": "end", "servers": storm.readings(), "logs": storm.log_sizes(), "ready": live})
    return verdict(record.rows)


def _what(at: int, last: dict[str, Any] | None) -> tuple[int, int | None]:
    """The number of a window's first attack, and how many, behind the `last` window of abuse; a harmless window repeats
    the first ones of that."""
    if last is None:
        return 0, None
    if at % 2:
        return last["from"], int(last["abuser"]["count"] * _HARMLESS)
    return last["from"] + last["abuser"]["count"], None


async def _asked(served: Served) -> bool:
    """Whether it says that it is ready, soon."""
    reply = await request(served.address, Asked.get("/ready", served.headers))
    return reply.status == 200 and reply.seconds < 5


def _line(row: dict[str, Any]) -> str:
    honest, abuser = row["honest"], row["abuser"]
    held = ", ".join(f"{kind} {one['mib']} MiB {one['descriptors']} files" for kind, one in row["servers"].items())
    return (
        f"{row['mode']} {abuser['count']} (share {abuser['share']}), honest {honest['texts']}: wrong "
        f"{honest['wrong']}, lost {honest['lost']}, first p50 {honest['p50_ms']} p99 {honest['p99_ms']} ms; {held}"
        + "".join(f"\n  WRONG {one}" for one in honest["faults"])
        + "".join(f"\n  DEAD {one}" for one in row["dead"])
    )


@contextmanager
def _kept(options: argparse.Namespace, directory: Path) -> Iterator[None]:
    """The servers' logs, beside the record, where a run ends or breaks off."""
    try:
        yield
    finally:
        for path in directory.glob("*.log"):
            with path.open("rb") as file, options.record.with_suffix(f".{path.stem}.log").open("ab") as kept:
                kept.write(file.read(1 << 26))


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(words: list[str] | None = None) -> int:
    """Run it; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m lab.abuse.storm", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="zoo:target")
    parser.add_argument("--record", type=Path, default=Path("storm.jsonl"))
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="of abuse; harmless windows take a quarter as long beside"
    )
    parser.add_argument("--window", type=float, default=60.0, help="seconds of one window")
    parser.add_argument("--clients", type=int, default=16, help="honest ones")
    parser.add_argument("--thinks", type=float, default=3.0, help="seconds between two texts of a client")
    parser.add_argument("--share", type=float, default=0.25, help="of a core that the abuser may take")
    parser.add_argument("--seed", type=int, default=0)
    told = asyncio.run(run(parser.parse_args(words)))
    _tell(json.dumps(told, indent=1))
    return 1 if told["faults"] else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is ended, too
    sys.exit(main())
