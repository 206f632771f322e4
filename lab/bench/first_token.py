"""`python -m lab.bench.first_token`: milliseconds to the first token of a chat, over HTTP and in this process.

    HTTP         `outdraft serve` in a process of its own, a connection for each request, one at a time, streamed
    in process   `LLM.chat` of one token, here

Each request has a message of its own; the first ones warm up and do not count. The median counts.
"""

import argparse
import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from time import perf_counter

from outdraft import LLM, SamplingParams
from outdraft.bench.load.http_stream import read_events
from outdraft.bench.machine import busy_note

_WARM = 3
_TOKENS = 8


def _messages(turn: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"{turn}: how late was it when the rain stopped?"}]


@contextmanager
def served(model: str, drafter: str) -> Iterator[str]:
    """The address of a server, which ends with the block."""
    words = [sys.executable, "-m", "outdraft.cli.main", "serve", model, "--port", "0", *_words(drafter)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"https?://\S+", process.stdout.readline())
            assert found is not None, "the server names no address"
            yield found[0]
        finally:
            process.terminate()


async def over_http(url: str, model: str, turn: int) -> float:
    """Milliseconds from asking until the first piece with text is there."""
    body = {"model": model, "messages": _messages(turn), "stream": True, "max_tokens": _TOKENS, "temperature": 0}
    began, first = perf_counter(), 0.0
    async for event in read_events(f"{url}/v1/chat/completions", {**body, "ignore_eos": True}):
        choices = json.loads(event)["choices"]
        if not first and choices and choices[0]["delta"].get("content"):
            first = perf_counter() - began
    return 1e3 * first


def in_process(llm: LLM, turn: int) -> float:
    """Milliseconds from asking until an answer of one token is there."""
    began = perf_counter()
    llm.chat(_messages(turn), SamplingParams(max_tokens=1, temperature=0))
    return 1e3 * (perf_counter() - began)


def _words(drafter: str) -> list[str]:
    return [] if drafter == "default" else ["--drafter", drafter]


def main(words: list[str] | None = None) -> int:
    """Measure and show."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.first_token", description=__doc__)
    parser.add_argument("model", nargs="?", default="zoo:target")
    parser.add_argument("--drafter", action="append", help="may be repeated; without it none and default")
    parser.add_argument("--requests", type=int, default=15)
    given = parser.parse_args(words)
    sys.stdout.write(f"{given.model}, {given.requests} requests; {busy_note()}\n")
    for drafter in given.drafter or ("none", "default"):
        turns = range(_WARM + given.requests)
        with served(given.model, drafter) as url:
            http = [asyncio.run(over_http(url, given.model, turn)) for turn in turns]
        with LLM(given.model) if drafter == "default" else LLM(given.model, drafter=drafter) as llm:
            here = [in_process(llm, turn) for turn in turns]
        sys.stdout.write(
            f"  {drafter:8} HTTP {median(http[_WARM:]):.1f} ms, in process {median(here[_WARM:]):.1f} ms\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
