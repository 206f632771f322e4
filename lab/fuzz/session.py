"""A fuzz run: which cases are there, and which process runs each.

The choice of native kernels belongs to a process, so cases that want others go to a child of this program, one line a
case in each direction.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, NoReturn

from lab.fuzz.asks import Language
from lab.fuzz.journal import Journal
from lab.fuzz.models import TINY, ZOO, Models
from lab.fuzz.plan import Case, plan_case
from lab.fuzz.run import Record, Runner
from lab.fuzz.subjects import Workshop
from outdraft.core.registry import find, names
from outdraft.testing.spec_table import DrafterRow

KERNELS = "OUTDRAFT_KERNELS"
BARREN = 100  # cases in a row without a text, after which a run gives up


@dataclass(slots=True, kw_only=True)
class Session:
    """The cases of one base seed. `folder` is for models; `words` start a child that answers `serve`."""

    folder: Path
    rows: Seq[DrafterRow]
    seed: int = 0
    plant: str | None = None
    words: Seq[str] = ()
    drafters: list[str] = field(default_factory=lambda: [one for one in names("drafter") if _guesses(one)])
    policies: list[str] = field(default_factory=lambda: names("policy"))
    _languages: dict[str, Language] = field(init=False)
    _runner: Runner = field(init=False)
    _children: "dict[str, subprocess.Popen[str]]" = field(default_factory=dict)

    def __post_init__(self) -> None:
        models = Models(self.folder)
        self._languages = {ZOO: models.language(ZOO), "tiny": models.language(TINY[0])}
        self._runner = Runner(Workshop(models=models, rows=self.rows, verifier=self.plant))

    def case(self, number: int) -> Case:
        """A pure function of the number, the base seed and the catalogue."""
        return plan_case(number, self.seed, self.drafters, self.policies, self._languages)

    def run(self, number: int) -> Record:
        """Here, or in the process that has the kernels of the case."""
        case = self.case(number)
        if case.kernels == os.environ.get(KERNELS, ""):
            return self._runner.run(case)
        if (lost := self._children.get(case.kernels)) is not None and lost.poll() is not None:
            del self._children[case.kernels]  # it ended itself after a case that hung
        child = self._child(case.kernels)
        sent, answers = _pipes(child)
        sent.write(f"{number}\n")
        sent.flush()
        answer = answers.readline()
        if not answer:
            raise RuntimeError(f"the process with {KERNELS}={case.kernels} ended with {child.wait()} at case {number}")
        record = Record(**json.loads(answer))
        if record.hung:
            child.wait()
        return record

    def run_until(self, num_texts: int, journal: Journal) -> Iterator[Record]:
        """Cases that the journal lacks, in order, until it has so many texts or a hundred cases had none."""
        texts, number, barren = sum(record.texts for record in journal.records.values()), 0, 0
        while texts < num_texts and barren < BARREN:
            if number not in journal.records:
                record = self.run(number)
                journal.add(record)
                texts += record.texts
                barren = 0 if record.texts else barren + 1
                yield record
            number += 1

    def serve(self, asked: IO[str], answers: IO[str]) -> None:
        """Run the case of every number that is read; one line of JSON for each."""
        for line in asked:
            record = self._runner.run(self.case(int(line)))
            answers.write(json.dumps(asdict(record)) + "\n")
            answers.flush()
            if record.hung:
                leave_at_once()

    def close(self) -> None:
        for child in self._children.values():
            _pipes(child)[0].close()
            child.wait()
        self._children.clear()

    def _child(self, kernels: str) -> "subprocess.Popen[str]":
        if kernels not in self._children:
            environment: Mapping[str, str] = {**os.environ, KERNELS: kernels}
            self._children[kernels] = subprocess.Popen(
                [sys.executable, "-m", "lab.fuzz", *self.words, "--serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
        return self._children[kernels]


def leave_at_once() -> NoReturn:
    """End this process although threads of it hang, which Python would wait for."""
    sys.stdout.flush()
    os._exit(1)


def _guesses(drafter: str) -> bool:
    method = find("drafter", drafter)
    return method.shape_of(method.options()) != "nothing"


def _pipes(child: "subprocess.Popen[str]") -> tuple[IO[str], IO[str]]:
    assert child.stdin is not None and child.stdout is not None
    return child.stdin, child.stdout
