"""Start the server, ask, and say what was wrong: `python -m lab.soak_http --requests 20000`."""

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

from lab.soak_http.asked import Kind, Written, kinds, right, right_of
from lab.soak_http.model import write_model
from lab.soak_http.process import ServerProcess
from lab.soak_http.run import PLANTED, Soak, Tally
from lab.soak_http.server import BODY_TIMEOUT
from lab.soak_http.wire import Connection, request
from outdraft.engine.llm import LLM

_MOST_GROWTH = 32 << 20  # bytes in the second half
_ENOUGH = 5_000  # requests from which every fault must have come up
_CLOSES = 10.0  # seconds in which a closed connection must be closed on the other side, too
_AT_REST = 120.0  # seconds in which what is under way must be over


async def ask(address: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and JSON of one request."""
    connection = await Connection.open(address)
    await connection.send(request(method, path, None if body is None else json.dumps(body).encode()))
    head = await connection.head()
    told = await connection.body(head)
    connection.close()
    return head.status, json.loads(told)


async def rights_of(address: str, asked: list[Kind], alone: list[Written | None], tally: Tally) -> list[Written]:
    """What each must be answered: by the model in this process, else by the server when it has nothing else to do."""
    found = []
    for kind, known in zip(asked, alone, strict=True):
        status, reply = await ask(address, "POST", kind.path, {**kind.body, "speculative": False})
        if status != 200:
            raise RuntimeError(f"{kind.name} is refused: {reply}")
        told = right_of(kind, reply)
        for name, arguments in (call for each in told.calls for call in each):
            if not {"name", "age"} <= set(json.loads(arguments)):
                tally.wrong.append(f"{kind.name}: a call of {name} has not the arguments of its schema: {arguments}")
        if known is not None and (known.texts, known.calls) != (told.texts, told.calls):
            tally.wrong.append(f"{kind.name} alone wrote {str(told)[:300]}, the model writes {str(known)[:300]}")
        found.append(known or told)
    return found


async def at_rest(address: str, tally: Tally) -> None:
    """Nothing is under way, and it is ready."""
    end, told = perf_counter() + _AT_REST, dict[str, Any]()
    while perf_counter() < end:
        _, told = await ask(address, "GET", "/load")
        if not any(told[name] for name in ("server_load", "num_requests_running", "num_requests_waiting")):
            break
        await asyncio.sleep(0.2)
    else:
        tally.wrong.append(f"requests are under way when no client asks: {told}")
    if (ready := await ask(address, "GET", "/ready")) != (200, {"status": "ready"}):
        tally.wrong.append(f"it is not ready at the end: {ready}")


async def soak(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """The whole of it; the report, with what was wrong."""
    model = write_model(options.model, directory / "model")
    asked = kinds(Random(options.seed))
    with LLM(str(model), drafter="none") as plain:
        alone = [right(plain, kind) for kind in asked]
    words = ["-m", "lab.soak_http.server", str(model), "--kv-cache-memory", options.kv_cache_memory]
    words += ["--seed", str(options.seed), *(["--log", options.log] if options.log else [])]
    async with ServerProcess(words) as server:
        began, first = perf_counter(), Tally()
        rights = await rights_of(server.address, asked, alone, first)
        files_before = server.num_files
        soaking = Soak(server.address, asked, rights, seed=options.seed, slow_body=BODY_TIMEOUT, planted=True)
        tally = await soaking.run(options.requests, _tell, lambda: (server.memory, server.num_files), options.callers)
        tally.wrong[:0] = first.wrong
        await at_rest(server.address, tally)
        await rights_of(server.address, asked[:8], alone[:8], tally)  # it still answers, and rightly
        files, memory = await _files_at_rest(server, files_before), server.memory
        end = await server.terminate()
    if end["exit"] or end["left_over"]:
        tally.wrong.append(f"it ended with status {end['exit']}, and left {end['left_over']}")
    grown = memory - tally.memory[len(tally.memory) // 2]
    if grown > _MOST_GROWTH:
        tally.wrong.append(f"memory grew by {grown >> 20} MiB in the second half")
    if files > files_before:
        tally.wrong.append(f"{files} files are open at the end, {files_before} were at the beginning")
    if options.requests >= _ENOUGH:
        tally.wrong += without_effect(tally, end)
    return {
        "requests": options.requests,
        "seconds": round(perf_counter() - began),
        "counts": dict(sorted(tally.counts.items())),
        "statuses": dict(sorted(tally.statuses.items())),
        "preempted": end["preempted"],
        "drafter raised": end["broke"],
        "grown_mib_in_second_half": round(grown / 2**20, 1),
        "files_at_the_end": files,
        "wrong": tally.wrong,
    }


def without_effect(tally: Tally, end: dict[str, Any]) -> list[str]:
    """Planted faults that a long run should have met, and did not: then it has shown nothing about them."""
    met = {f"the fault {fault!r} in a request": tally.counts[f"planted, and failed: {fault}"] for fault in PLANTED}
    met |= {"a drafter that raises": end["broke"], "a full pool": end["preempted"]}
    return [f"{name} never came up" for name, count in met.items() if not count]


async def _files_at_rest(server: ServerProcess, wanted: int) -> int:
    """Files that stay open: a connection that was closed here is closed there a moment later."""
    end = perf_counter() + _CLOSES
    while server.num_files > wanted and perf_counter() < end:
        await asyncio.sleep(0.1)
    return server.num_files


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(words: list[str] | None = None) -> int:
    """Run it; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.soak_http", description="Many requests over HTTP, some broken."
    )
    parser.add_argument("--model", default="zoo:target")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--callers", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kv-cache-memory", default="2MiB")
    parser.add_argument("--log", help="a file for the server's log")
    with tempfile.TemporaryDirectory() as directory:
        report = asyncio.run(soak(parser.parse_args(words), Path(directory)))
    wrong = report.pop("wrong")
    _tell(json.dumps({**report, "wrong": len(wrong)}))
    for one in wrong[:40]:
        _tell(f"WRONG {one}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
