"""An engine of this process under load, through the stream that `LLM` gives to asyncio."""

import os
from time import perf_counter, process_time

from outdraft.bench.entrant import Ours
from outdraft.bench.load.clients import Answer
from outdraft.bench.load.jobs import LoadJob
from outdraft.bench.load.processes import wait_until_idle


class OurServer(Ours):
    """`LLM.astream`: concurrent requests share the batch."""

    def prepare(self) -> None:
        """Its drafter remembers nothing of the same requests in an earlier round."""
        self.llm.forget()

    def work_seconds(self) -> float:
        """Engine and clients share this process, so its processor time is all of theirs."""
        return process_time()

    def rest(self) -> None:
        """Pools of threads poll for a while after their work."""
        wait_until_idle([os.getpid()])

    async def ask(self, job: LoadJob) -> Answer:
        """Raises what the engine raises for this request."""
        arrivals: list[float] = []
        tokens: list[int] = []
        text, num_first, stats = "", 0, None
        began = perf_counter()
        async for chunk in self.llm.astream({"prompt_token_ids": job.ids}, job.params):
            arrivals.append(perf_counter() - began)
            num_first = num_first or len(chunk.token_ids)
            tokens += chunk.token_ids
            text += chunk.text
            stats = chunk.stats or stats
        return Answer(
            arrivals=tuple(arrivals),
            num_first=num_first,
            num_tokens=len(tokens),
            text=text,
            token_ids=tuple(tokens),
            stats=stats,
        )
