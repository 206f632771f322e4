"""`python -m lab.bench.ray MODEL`: engines behind the front on Ray against as many started by hand.

    by hand   client i -> outdraft serve number i mod N
    on Ray    every client -> outdraft serve --ray --replicas N

The same requests in turns, streamed or whole, every answer of one length; tokens a second, and their ratio by rounds.
All processes, Ray's own and the clients among them, share this machine.
"""

import argparse
import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from contextlib import ExitStack
from statistics import median

from outdraft.bench.load.http_stream import HttpError, read_events, read_json
from outdraft.bench.made import make_model
from outdraft.bench.shelf import Shelf
from outdraft.options.errors import OutdraftError

_START = 180.0  # seconds in which a server must have begun


def main(words: Seq[str] | None = None) -> int:
    """Measure and show; 2 where a server does not begin or breaks off."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.ray", description=__doc__)
    parser.add_argument("model", nargs="?", default="zoo:target@4x12", help="a directory, or zoo:NAME")
    parser.add_argument("--drafter", default="ngram")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=4, help="of each client in a round, one after the other")
    parser.add_argument("--max-tokens", type=int, default=64, help="of every answer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--whole", action="store_true", help="answers come when they are whole, and not as streams")
    given = parser.parse_args(words)
    try:
        return _measure(given)
    except OutdraftError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


def _measure(given: argparse.Namespace) -> int:
    engine = ["--model", _place(given.model), "--drafter", given.drafter, "--served-model-name", "target"]
    with ExitStack() as running:
        ports = [_free_port() for _ in range(given.replicas + 1)]
        by_hand = [running.enter_context(_Server(engine, port)) for port in ports[1:]]
        on_ray = running.enter_context(_Server([*engine, "--ray", "--replicas", str(given.replicas)], ports[0]))
        for server in (*by_hand, on_ray):
            server.wait()
        ways = {"by hand": [server.url for server in by_hand], "on Ray": [on_ray.url]}
        for urls in ways.values():
            asyncio.run(_load(urls, given))  # both are warm
        found: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(given.rounds):
            for way in list(ways)[:: 1 if turn % 2 == 0 else -1]:
                found[way].append(asyncio.run(_load(ways[way], given)))
    _tell(given, found)
    return 0


async def _load(urls: Seq[str], given: argparse.Namespace) -> float:
    """All clients at once; tokens a second."""

    async def client(number: int) -> None:
        for i in range(given.requests):
            body = {
                "model": "target",
                "prompt": f"Client {number} asks for the {i}th time: on that day the captain",
                "max_tokens": given.max_tokens,
                "ignore_eos": True,
                "stream": not given.whole,
                "temperature": 0.8,
                "seed": 1000 * number + i,
            }
            async for event in read_events(f"{urls[number % len(urls)]}/v1/completions", body):
                if event.startswith('{"error"'):
                    raise HttpError(f"a stream broke off: {event}")

    began = time.perf_counter()
    await asyncio.gather(*map(client, range(given.clients)))
    return float(given.clients * given.requests * given.max_tokens / (time.perf_counter() - began))


def _tell(given: argparse.Namespace, found: Mapping[str, Seq[float]]) -> None:
    ratios = [ray / hand for ray, hand in zip(found["on Ray"], found["by hand"], strict=True)]
    sys.stdout.write(
        f"{given.model}, {given.drafter}, {given.replicas} engines, {given.clients} clients, "
        f"{'whole answers' if given.whole else 'streams'} of {given.max_tokens} tokens, {given.rounds} rounds\n"
    )
    for way, rates in found.items():
        each = " ".join(f"{rate:.1f}" for rate in rates)
        sys.stdout.write(f"  {way:8} {median(rates):8.1f} tokens a second ({each})\n")
    sys.stdout.write(f"  on Ray / by hand: {median(ratios):.2f} ({' '.join(f'{one:.2f}' for one in ratios)})\n")


class _Server:
    """`outdraft serve` in a process of its own, which ends with the block."""

    def __init__(self, words: Seq[str], port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._words = [sys.executable, "-m", "outdraft", "serve", *words, "--port", str(port)]

    def __enter__(self) -> "_Server":
        self._process = subprocess.Popen(self._words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return self

    def wait(self) -> None:
        """Until it answers. Raises `OutdraftError` where it does not."""
        until = time.monotonic() + _START
        while time.monotonic() < until and self._process.poll() is None:
            try:
                asyncio.run(read_json(f"{self.url}/v1/models"))
                return
            except HttpError:
                time.sleep(0.5)
        raise OutdraftError(f"no server began: run it by hand to see why: {' '.join(self._words)}")

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _place(model: str) -> str:
    """Where the model is, for processes that do not inflate."""
    return str(make_model(model, Shelf()).path)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
