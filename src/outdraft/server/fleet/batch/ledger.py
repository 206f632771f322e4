"""What of a batch is done, on disk, so that a run that was killed goes on and nothing is done or counted twice.

    folder/part-5be1....jsonl     answers of requests that were written together, whole or not there at all
    folder/results.jsonl          all answers in the order of the input, once every request has one

Each answer has the key of what was asked: id, endpoint, body with its seed, and the engine's arguments. An answer to
anything else does not count, so a request that has changed, or has another engine, is asked again.

A part is named by its keys, and renamed into place when it is complete: a machine that writes the same requests again,
because one died after writing and before reporting, replaces it by the same answers. Should two parts share a key all
the same, the first one counts. The folder is one that every machine of the run can write to.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson

from outdraft.options.errors import ConfigError
from outdraft.options.new_file import new_file
from outdraft.server.fleet.batch.jobs import BatchJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What became of the requests of a run; `done + failed + skipped` are all of them, when it is over."""

    total: int
    done: int  # answered by this run
    failed: int  # refused, or broken off, in this run: their lines have the error
    skipped: int  # answered by an earlier run

    @property
    def is_complete(self) -> bool:
        return self.done + self.failed + self.skipped == self.total


class Ledger:
    """`folder`: made where it is not there. `engine`: the arguments of the `LLM` that answers."""

    def __init__(self, folder: str | Path, engine: Mapping[str, Any]) -> None:
        self.folder, self._engine = Path(folder), dict(engine)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{folder} cannot be made: {error}; name a folder for the answers") from error

    def key(self, job: BatchJob) -> str:
        """What its answer has as `asked`. `job`: with its seed."""
        asked = orjson.dumps([job.custom_id, job.url, job.body, self._engine], default=str, option=orjson.OPT_SORT_KEYS)
        return blake2b(asked, digest_size=16).hexdigest()

    def missing(self, jobs: Seq[BatchJob], *, retry_failed: bool = False) -> list[BatchJob]:
        """Requests, with their seeds, that have no answer.

        `retry_failed`: those that failed are asked again; their answers are dropped.
        """
        answers = self._answers()
        if retry_failed:
            for path in self._parts():
                lines = list(_lines(path))
                if not all(map(has_worked, lines)):
                    self.write([line for line in lines if has_worked(line)])
                    path.unlink()
            answers = self._answers()
        return [job for job in jobs if self.key(job) not in answers]

    def find(self, jobs: Seq[BatchJob]) -> list[dict[str, Any]] | None:
        """The answers to exactly these requests, if they were written together before."""
        path = self._part(map(self.key, jobs))
        return list(_lines(path)) if path.exists() else None

    def write(self, answers: Seq[dict[str, Any]]) -> None:
        """Keep these answers; from now on they are there, whatever happens."""
        if not answers:
            return
        with new_file(self._part(one["asked"] for one in answers)) as path, path.open("wb") as file:
            file.writelines(orjson.dumps(one) + b"\n" for one in answers)

    def finish(self, jobs: Seq[BatchJob], todo: Seq[BatchJob]) -> Account:
        """Count, and write `results.jsonl` where nothing is missing. `todo`: what the run had to do."""
        answers, mine = self._answers(), {job.custom_id for job in todo}
        told = [answers.get(self.key(job)) for job in jobs]
        new = [one for one in told if one is not None and one["custom_id"] in mine]
        done = sum(map(has_worked, new))
        account = Account(total=len(jobs), done=done, failed=len(new) - done, skipped=len(jobs) - len(mine))
        if account.is_complete:
            with new_file(self.folder / "results.jsonl") as path, path.open("wb") as file:
                file.writelines(orjson.dumps(one) + b"\n" for one in told)
        return account

    def _answers(self) -> dict[str, dict[str, Any]]:
        """By what was asked."""
        found: dict[str, dict[str, Any]] = {}
        for path in self._parts():
            for line in _lines(path):
                found.setdefault(line["asked"], line)
        return found

    def _parts(self) -> list[Path]:
        return sorted(self.folder.glob("part-*.jsonl"))

    def _part(self, keys: Iterable[str]) -> Path:
        name = blake2b("\n".join(sorted(keys)).encode(), digest_size=16).hexdigest()
        return self.folder / f"part-{name}.jsonl"


def has_worked(answer: dict[str, Any]) -> bool:
    """Whether it is a text and no error."""
    return bool(answer["response"]["status_code"] == 200)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as lines:
        for line in lines:
            yield orjson.loads(line)
