"""Drive a sweep: one worker process at a time, another when it is lost, a journal of verdicts, an exit code.

    python -m lab.strange --count 5000 --journal strange.jsonl      run it again, and it goes on

Data in: the module that has the cases; data out: verdicts, in the journal and on the terminal. Exit code 1 if any case
ended badly.
"""

import argparse
import json
import os
import select
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lab.source import digest_source
from lab.sweep.case import GOOD, Verdict
from outdraft.options.errors import ConfigError

SECONDS = 2.0  # of processor time that a case may take
PATIENCE = 60.0  # seconds of the clock without an answer, after which the process is lost


class Worker:
    """The process, started when it is first asked and after each loss."""

    def __init__(self, module: str, directory: Path, seed: int, seconds: float) -> None:
        self._words = [sys.executable, "-m", "lab.sweep.worker", module, str(directory), str(seed)]
        self._words.append(str(seconds))
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    def judge(self, number: int) -> Verdict:
        """The verdict on one case; a lost process is a verdict too."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        process.stdin.write(f"{number}\n".encode())
        process.stdin.flush()
        name = self._read().get("begun", "the first words of the process")
        told = self._read() if name else {}
        if told:
            verdict = _verdict(told)
            if verdict.end == "hang":  # a thread of it may still be at work
                self.close()
            return verdict
        end = "hang" if process.poll() is None else "crash"
        self.close()
        return Verdict(number=number, name=str(name), end=end, said=f"exit code {process.returncode}")

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process, self._unread = None, b""

    def _start(self) -> "subprocess.Popen[bytes]":
        settings = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=settings)

    def _read(self) -> dict[str, Any]:
        """One line; empty if none comes."""
        assert self._process is not None and self._process.stdout is not None
        while b"\n" not in self._unread:
            if not select.select([self._process.stdout], [], [], PATIENCE)[0]:
                return {}
            piece = self._process.stdout.read(1 << 16)
            if not piece:
                self._process.wait()
                return {}
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        told: dict[str, Any] = json.loads(line)
        return told


def sweep(module: str, numbers: Iterator[int], *, seed: int = 0, seconds: float = SECONDS) -> Iterator[Verdict]:
    """The verdicts on these cases, in order."""
    with TemporaryDirectory(prefix="outdraft-sweep-") as directory:
        worker = Worker(module, Path(directory), seed, seconds)
        try:
            for number in numbers:
                yield worker.judge(number)
        finally:
            worker.close()


def main(module: str, count: int, words: list[str] | None = None) -> int:
    """The command line of a sweep of `count` cases by default."""
    parser = argparse.ArgumentParser(prog=f"python -m {module.rpartition('.')[0]}")
    parser.add_argument("--count", type=int, default=count, help="cases in all")
    parser.add_argument("--seed", type=int, default=0, help="which cases")
    parser.add_argument("--journal", type=Path, help="verdicts, a line each; what stands there is not done again")
    parser.add_argument("--only", type=int, nargs="*", help="these cases alone, not journalled")
    given = parser.parse_args(words)
    try:
        found = {} if given.only else _read_journal(given.journal, module, given.seed)
    except ConfigError as error:
        parser.error(str(error))
    wanted = given.only or [number for number in range(given.count) if number not in found]
    ends = Counter(verdict.end for verdict in found.values())
    for verdict in sweep(module, iter(wanted), seed=given.seed):
        ends[verdict.end] += 1
        if given.journal is not None and not given.only:
            with given.journal.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"seed": given.seed, **verdict.to_json()}) + "\n")
        if not verdict.is_good or given.only:
            sys.stdout.write(f"{verdict.end} {verdict.number}: {verdict.name}\n  {verdict.said}\n{verdict.where}\n")
            sys.stdout.flush()
    sys.stdout.write(", ".join(f"{count} {end}" for end, count in sorted(ends.items())) + "\n")
    return 0 if set(ends) <= set(GOOD) else 1


def _read_journal(path: Path | None, module: str, seed: int) -> dict[int, Verdict]:
    """Its first line says which cases it is of, and which source they tried: verdicts on others do not count."""
    if path is None:
        return {}
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    head = {"module": module, "source": digest_source()}
    whole = text[: text.rfind("\n") + 1] or json.dumps(head) + "\n"
    if whole != text:  # it is new, or the process ended in the middle of a line
        path.write_text(whole, encoding="utf-8")
    first, *rows = [json.loads(line) for line in whole.splitlines()]
    if first != head:
        raise ConfigError(f"{path} is the journal of {first}, this is {head}: take another file, or remove it")
    return {row["number"]: _verdict(row) for row in rows if row["seed"] == seed}


def _verdict(told: Mapping[str, Any]) -> Verdict:
    return Verdict(**{one.name: told[one.name] for one in fields(Verdict)})
