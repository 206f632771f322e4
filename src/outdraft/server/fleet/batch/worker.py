"""One engine that answers batches: the application of `outdraft serve`, asked in its own process.

So a batch can ask for whatever the server can, and a request that is wrong is refused as the server refuses it.
"""

import asyncio
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any

import orjson

from outdraft.engine.llm import LLM
from outdraft.server.app import make_app
from outdraft.server.fleet.ask import Head, ProxiedRequest, ask_here
from outdraft.server.fleet.batch.jobs import BatchJob
from outdraft.server.fleet.batch.ledger import Ledger
from outdraft.server.fleet.route_key import route_key
from outdraft.server.service import Service
from outdraft.server.settings import ServerSettings

_JSON = ((b"content-type", b"application/json"),)


class BatchWorker:
    """`engine`: the arguments of `LLM`. `folder`: of the ledger."""

    def __init__(self, engine: Mapping[str, Any], folder: str) -> None:
        self._ledger = Ledger(folder, engine)
        llm = LLM(**engine)
        self._app = make_app(Service(llm, ServerSettings(served_model_name=(str(engine["model"]),))))

    def answer(self, jobs: Seq[BatchJob]) -> list[dict[str, Any]]:
        """The answers to these requests, which are on disk then; if they were there before, nothing is asked."""
        found = self._ledger.find(jobs)
        if found is None:
            found = asyncio.run(self._ask_all(jobs))
            self._ledger.write(found)
        return found

    async def _ask_all(self, jobs: Seq[BatchJob]) -> list[dict[str, Any]]:
        """All at once, those that begin alike one after another, for the prefix cache's sake."""
        ordered = sorted(jobs, key=lambda job: route_key(job.body).pages)
        told = await asyncio.gather(*map(self._ask, ordered))
        return sorted(told, key=lambda one: [job.custom_id for job in jobs].index(one["custom_id"]))

    async def _ask(self, job: BatchJob) -> dict[str, Any]:
        head, body = Head(500), b""
        ask = ProxiedRequest(method="POST", path=job.url, headers=_JSON, body=orjson.dumps(job.body))
        async for piece in ask_here(self._app, ask):
            if isinstance(piece, Head):
                head = piece
            else:
                body += piece
        request_id = next((value for name, value in head.headers if name == b"x-request-id"), b"")
        read = orjson.loads(body)
        return {
            "id": f"batch_req_{job.custom_id}",
            "custom_id": job.custom_id,
            "asked": self._ledger.key(job),
            "response": {"status_code": head.status, "request_id": request_id.decode(), "body": read},
            "error": None if head.status == 200 else read.get("error"),
        }
