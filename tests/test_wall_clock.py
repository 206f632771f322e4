"""The wall clock may jump, by a correction or by a hand: what it says is shown, and decides nothing.

Timeouts, rates, drains and all that is measured go by clocks that only run forward.
"""

import ast
import time
from pathlib import Path

import httpx
import pytest
from serving import serving

from outdraft import LLM

SOURCE = Path(__file__).parents[1] / "src/outdraft"

# Each file that asks for the time of day, and what for.
SHOWN = {
    "adapt/room.py": "when a line of the ledger was written",
    "adapt/spool.py": "the age of requests, in days; a jump deletes them earlier or later",
    "bench/write.py": "the date of a record",
    "cli/commands/bench.py": "the name of a folder",
    "codecs/sandbox.py": "strftime_now of chat templates",
    "engine/adapting/adapting.py": "the age of a tenant, in days; likewise",
    "models/remake/packed_cache.py": "the age of a file that another process left; a day more or less changes nothing",
    "server/endpoints/answering.py": "created",
    "server/endpoints/responses.py": "completed_at",
    "server/service.py": "when the server began",
    "training/alone.py": "the age of what a killed run left, to a minute; a jump leaves it there, or removes it sooner",
    "weights/direct.py": "the age of a last write, to a tick; a jump leaves the check by stamps",
}


def asks(tree: ast.Module) -> bool:
    own = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "time"
        for alias in node.names
        if alias.name in ("time", "time_ns", "localtime", "gmtime")
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in own or called in ("time.time", "time.time_ns", "datetime.now", "date.today", "datetime.utcnow"):
            return True
    return False


def test_who_asks_for_the_time_of_day_only_shows_it():
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if asks(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == {*SHOWN}, "take monotonic() or perf_counter(), or list the file with what it shows"


@pytest.mark.parametrize("jump", [-1e8, 1e8], ids=["back", "forward"])
def test_a_jump_of_the_wall_clock_disturbs_no_request(monkeypatch, jump):
    """Neither its own timeout, nor the server's, nor the rate; what comes behind the jump neither."""
    real, begun = time.time, []
    monkeypatch.setattr(time, "time", lambda: real() + (jump if begun else 0))
    with (
        LLM("zoo:target", drafter="ngram") as llm,
        serving(llm, timeout=1000.0, rate_limit=3, keep_alive=1000.0, body_timeout=1000.0) as (address, service),
    ):
        body = {"prompt": "It was late when", "max_tokens": 40, "ignore_eos": True, "temperature": 0, "timeout": 900}
        with httpx.stream("POST", f"{address}/v1/completions", json={**body, "stream": True}, timeout=60) as reply:
            pieces = reply.iter_lines()
            next(pieces)
            begun.append(True)
            text = "\n".join(pieces)
        assert '"finish_reason":"length"' in text and '"stop_reason":"timeout"' not in text and "keep-alive" not in text
        again = httpx.post(f"{address}/v1/completions", json=body, timeout=60).json()
        assert again["choices"][0]["stop_reason"] is None and again["usage"]["completion_tokens"] == 40
        assert httpx.post(f"{address}/v1/completions", json=body, timeout=60).status_code == 200
        assert httpx.post(f"{address}/v1/completions", json=body, timeout=60).status_code == 429
        assert service.num_under_way == 0
