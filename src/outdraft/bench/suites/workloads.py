"""Our own workloads, each with a kind of regularity that drafters use: repetition, grammar, indentation, patterns.

copy, prose, code and docs are held-out texts of the zoo. A log is made up by rule, so that it needs no file and is the
same everywhere: a few kinds of line with running numbers, as servers write them.

`REAL`: 80 questions each of MT-Bench (first turns), GSM8K and HumanEval, asked as a user asks them. They need a model
that was taught to answer.
"""

import gzip
import json
import random
from pathlib import Path

from outdraft import zoo
from outdraft.bench.suites.prompt import Prompt

_KINDS = {"copy": "copy", "prose": "prose", "code": "python", "docs": "docs"}  # our name -> the zoo's
DEFAULT = ("copy", "prose", "code", "log")
REAL = ("mt-bench", "gsm8k", "humaneval")
NAMES = (*DEFAULT, "docs", *REAL)
_REAL_FILE = Path(__file__).parent / "real.jsonl.gz"  # made by lab/bench/real_prompts.py
_NUM_LOGS, _NUM_LINES = 8, 8


def workload(name: str) -> list[Prompt]:
    """All prompts of one of `NAMES`."""
    if name in REAL:
        rows = map(json.loads, gzip.decompress(_REAL_FILE.read_bytes()).decode("utf-8").split("\n")[:-1])
        return [
            Prompt(suite=name, name=row["id"], category=row["category"], turns=tuple(row["turns"]), chat=True)
            for row in rows
            if row["suite"] == name
        ]
    if name == "log":
        texts = {str(number): log_text(number) for number in range(1, _NUM_LOGS + 1)}
    else:
        kind = _KINDS[name]
        texts = {key.split()[1]: text for key, text in zoo.heldout_prompts().items() if key.split()[0] == kind}
    return [
        Prompt(
            suite=name, name=number, category=name, turns=(text,), references=_copied(text) if name == "copy" else ()
        )
        for number, text in texts.items()
    ]


def _copied(text: str) -> tuple[str, ...]:
    """The passage that a copy repeats: the document that "inference with reference" would be given."""
    return (text.partition("\n\nCopy:\n\n")[0],)


def log_text(seed: int) -> str:
    """The opening of a log; the same seed gives the same text."""
    rng = random.Random(seed)
    clock, job = rng.randrange(36_000, 60_000), rng.randrange(1000, 9000)
    table = rng.choice(("orders", "users", "events", "invoices"))
    lines = []
    for _ in range(_NUM_LINES // 2):
        worker, rows = rng.randrange(1, 5), rng.randrange(1, 40) * 25
        for said in (f"job {job} started", f"job {job} wrote {rows} rows to {table}"):
            stamp = f"{clock // 3600:02d}:{clock // 60 % 60:02d}:{clock % 60:02d}"
            lines.append(f"2026-03-{seed:02d} {stamp} INFO worker-{worker} {said}\n")
            clock += rng.randrange(1, 4)
        job += 1
    return "".join(lines)
