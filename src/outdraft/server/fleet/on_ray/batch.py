"""A batch on Ray Data: `map_batches` over the requests that have no answer yet, with one engine an actor.

Ray cuts the requests into batches, hands them to actors, and hands a batch out again whose actor or node has died.
What makes that exactly once is the ledger (`fleet/batch/ledger.py`); what makes it the same text, the seeds.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import ray.data

from outdraft.server.fleet.batch.jobs import BatchJob, read_jobs
from outdraft.server.fleet.batch.ledger import Account, Ledger, has_worked
from outdraft.server.fleet.batch.worker import BatchWorker


class BatchActor:
    """The class that `map_batches` takes. Rows are requests as JSON; what comes out is an id and whether it worked."""

    def __init__(self, engine: Mapping[str, Any], folder: str) -> None:
        self._worker = BatchWorker(engine, folder)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        jobs = [BatchJob(**orjson.loads(line)) for line in batch["job"]]
        answers = self._worker.answer(jobs)
        return {"custom_id": [one["custom_id"] for one in answers], "worked": [has_worked(one) for one in answers]}


def answer_batch(
    source: str | Path,
    folder: str | Path,
    engine: Mapping[str, Any],
    *,
    actors: int = 1,
    batch_size: int = 32,
    cpus: float = 1,
    seed: int = 0,
    retry_failed: bool = False,
) -> Account:
    """Answer every request of the file `source` that has no answer in `folder` yet. Call it again if it was killed.

    An answer to another body, by an engine of other arguments or with another seed is none.

    `engine`: the arguments of `LLM`. `actors`: engines, each with `cpus` cores. `seed`: of requests that have none.
    Raises `ConfigError` for a file that cannot be read, or an id that comes twice, before anything is asked.
    """
    jobs, ledger = [job.seeded(seed) for job in read_jobs(source)], Ledger(folder, engine)
    todo = ledger.missing(jobs, retry_failed=retry_failed)
    if todo:
        rows = [{"job": orjson.dumps(job).decode()} for job in todo]
        made = ray.data.from_items(rows).map_batches(
            BatchActor,
            fn_constructor_args=({**engine}, str(Path(folder).resolve())),
            batch_size=batch_size,
            compute=ray.data.ActorPoolStrategy(size=actors),
            num_cpus=cpus,
        )
        for _ in made.iter_batches(batch_size=None):
            pass  # answers are on disk; nothing is gathered here
    return ledger.finish(jobs, todo)
