"""`python -m lab.soak_http.server DIR`: the server that is soaked, with faults planted in its engine.

A request asks for a fault of its own by `metadata: {"soak": NAME}`: `raise` (a constraint that raises in the middle of
a text), `infinite` (vectors that make logits of no value), `defect` (an unforeseen error, with a secret in its
text). Beside these a pool says now and then that it is full, and a drafter raises. After SIGTERM it writes one line of
JSON: what is left in the engine.
"""

import argparse
import json
import logging
import sys
import threading
from collections.abc import Sequence as Seq
from pathlib import Path
from random import Random
from typing import Any

import torch

from lab.own_caches import own_caches
from lab.soak import Raises, breaks_at_times, full_at_times, left_over
from outdraft.cache.paged import PagedCache
from outdraft.engine.assembly.variant import runner_of
from outdraft.engine.callers.answers import Answers
from outdraft.engine.callers.prompts import Prompt
from outdraft.engine.llm import LLM
from outdraft.engine.loop import Engine
from outdraft.options.params import SamplingParams
from outdraft.server.schema.sampling import SamplingFields
from outdraft.server.serve import serve
from outdraft.server.service import Service
from outdraft.server.settings import ServerSettings

BODY_TIMEOUT = 8.0  # seconds


class Planted(Service):
    """A service in which a request may ask for a fault."""

    async def open(
        self, body: SamplingFields, prompts: Seq[Prompt], params: SamplingParams, salt: str, **more: Any
    ) -> Answers:
        match (body.metadata or {}).get("soak"):
            case "raise":
                size = self.llm.engine.parts.target.vocab_size
                more["constraint"] = lambda: Raises(size, 3)
            case "infinite":
                rows = len(self.llm.encode(prompts[0]))
                more["prompt_embeds"] = torch.full((rows, runner_of(self.llm.engine.parts).hidden_size), torch.inf)
            case "defect":
                raise KeyError("secret of /usr/lib/secret.py at 0xdeadbeef")
        return await super().open(body, prompts, params, salt, **more)


class _WhileMany(Random):
    """Dice that come up only where another request could give way: a text that is alone finds no pool full."""

    def __init__(self, engine: Engine, rng: Random) -> None:
        super().__init__(0)
        self._engine, self._rng = engine, rng

    def random(self) -> float:
        return self._rng.random() if len(self._engine.running) > 3 else 1.0


def main(words: list[str] | None = None) -> int:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m lab.soak_http.server")
    parser.add_argument("model")
    parser.add_argument("--kv-cache-memory", default="2MiB")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--full", type=float, default=0.001)
    parser.add_argument("--breaks", type=float, default=0.0005)
    parser.add_argument("--log", type=Path)
    asked = parser.parse_args(words)
    logging.basicConfig(level=logging.INFO, filename=asked.log, force=True)
    if asked.log is None:
        logging.getLogger().handlers = [logging.NullHandler()]
    llm = LLM(
        asked.model,
        kv_cache_memory=asked.kv_cache_memory,
        enable_prefix_caching=True,
        max_num_seqs=24,
        max_num_waiting=256,
    )
    with llm:
        cache, rng = runner_of(llm.engine.parts).cache, Random(asked.seed)
        assert isinstance(cache, PagedCache)
        for each in (cache, *own_caches(llm.engine.parts.drafter, cache)):
            full_at_times(each, _WhileMany(llm.engine, rng), asked.full)
        broke = breaks_at_times(llm.engine.parts.drafter, rng, asked.breaks)
        settings = ServerSettings(
            served_model_name=("soaked",), body_timeout=BODY_TIMEOUT, max_tokens=64, tool_call_parser="hermes"
        )
        serve(
            Planted(llm, settings),
            host="127.0.0.1",
            port=0,
            certificate=None,
            ready=lambda address: _tell({"address": address}),
        )
        _tell(
            {
                "left_over": llm._thread.ask(left_over),
                "threads": threading.active_count(),
                "broke": broke.total(),
                "preempted": llm.engine.scheduler.num_preempted,
            }
        )
    return 0


def _tell(told: Any) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
