"""Double each field until it is refused: `python -m lab.abuse.doubling --record doubling.jsonl`.

Data in: a model; data out: a line for each way of each field and for each pair, and `--table` as Markdown. What stands
in the record is not measured again. Exit code 1 if anything did not hold.
"""

import argparse
import asyncio
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

from lab.abuse.compare import MOST_GROWTH, MOST_RATIO, Harm, compare
from lab.abuse.model import write_model
from lab.abuse.record import Record
from lab.abuse.stand import Stand, stand
from lab.abuse.subjects import Subject, subjects
from lab.abuse.table import table

_DEEP = 20_000  # levels of a body that this process must be able to write
_TOO_LARGE = 413
_ENOUGH = 8.0  # times the gap
_BEYOND = 4  # doublings between two sizes once a request is refused: what a refusal costs grows too


async def double(found: Stand, harm: Harm, subject: Subject, options: argparse.Namespace) -> dict[str, Any]:
    """The row of one subject: its sizes, what limits it, and whether that held."""
    rows: list[dict[str, Any]] = []
    first_refused: int | None = None
    for size in _steps(subject.sizes, options.step):
        if first_refused is not None and size < first_refused * 2**_BEYOND:
            continue
        try:
            asked = subject.make(size)
        except (RecursionError, MemoryError) as error:
            rows.append({"size": size, "status": None, "said": f"this process cannot write it: {error}"})
            break
        row = {
            "size": size,
            **await compare(found, harm, asked, subject.texts(size), deadline=options.deadline, lock=options.lock),
        }
        rows.append({name: value for name, value in row.items() if value not in ("", [])})
        if not found.served.is_alive:
            await found.rest()
        is_broken = row["status"] == 0 and not row.get("late")
        if row["status"] == _TOO_LARGE or is_broken or "fault" in row or row.get("ratio", 0) > _ENOUGH:
            break  # larger ones are no better
        if row["status"] >= 400:
            first_refused = size
    return {"name": subject.name, "how": subject.how, "pair": subject.is_pair, **judged(rows), "sizes": rows}


def _steps(sizes: tuple[int, ...], step: int) -> Iterator[int]:
    """Every `step`-th, and the last."""
    yield from sizes[::step]
    if (len(sizes) - 1) % step:
        yield sizes[-1]


def judged(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the sizes say together."""
    measured = [row for row in rows if row["status"] is not None]
    refused = [row for row in measured if row["status"] >= 400]
    limit = refused[0] if refused else {}
    taken = [row["size"] for row in measured if 0 < row["status"] < 400]
    worst = max((row.get("ratio", 0.0) for row in measured), default=0.0)
    kept = max((row.get("kept_mib", 0.0) for row in measured), default=0.0)
    wrong = [f"at {row['size']}: {row['fault']}" for row in measured if "fault" in row]
    wrong += [f"at {row['size']}: {one}" for row in measured for one in row.get("faults", ())]
    wrong += [f"{worst} times the gap"] if worst >= MOST_RATIO else []
    wrong += [f"{kept:.0f} MiB stay"] if kept * 2**20 > MOST_GROWTH else []
    return {
        "largest_taken": max(taken, default=None),
        "refused_at": limit.get("size"),
        "refused_with": limit.get("status"),
        "refusal": limit.get("said"),
        "ratio": worst,
        "kept_mib": kept,
        "peak_mib": max((row.get("peak_mib", 0) for row in measured), default=0),
        "cpu": max((row.get("cpu", 0.0) for row in measured), default=0.0),
        "wrong": wrong,
    }


async def run(options: argparse.Namespace) -> int:
    """All subjects that the record does not have yet; how many did not hold."""
    settings = {"model": options.model, "step": options.step, "deadline": options.deadline}
    with tempfile.TemporaryDirectory(prefix="outdraft-doubling-") as directory:
        model = write_model(options.model, Path(directory) / "model")
        record = Record(options.record, settings)
        done = {(row["name"], row["how"]) for row in record.rows}
        async with stand(model, Path(directory)) as found:
            harm, wanted = Harm(), list(subjects(await found.openapi()))
            for number, subject in enumerate(wanted):
                if (subject.name, subject.how) in done or not re.search(options.only, subject.name):
                    continue
                if (options.pairs and not subject.is_pair) or (subject.same_as and not options.every):
                    continue
                began, lost = monotonic(), found.num_lost
                row = await double(found, harm, subject, options)
                if found.num_lost != lost:
                    harm = Harm()  # another server
                    row["wrong"].append(f"{found.num_lost - lost} servers lost")
                record.add({**row, "wall": round(monotonic() - began, 1)})
                told = f"taken {row['largest_taken']}, refused {row['refused_at']}, ratio {row['ratio']}"
                verdict = "; ".join(row["wrong"]) or "held"
                _tell(f"{number + 1} of {len(wanted)}: {subject.name}, {subject.how}: {told}, {verdict}")
    return sum(bool(row["wrong"]) for row in record.rows)


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(words: list[str] | None = None) -> int:
    """Run it, or write the table of a record; 1 if anything did not hold."""
    parser = argparse.ArgumentParser(prog="python -m lab.abuse.doubling", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="zoo:target")
    parser.add_argument("--record", type=Path, default=Path("doubling.jsonl"))
    parser.add_argument("--step", type=int, default=1, help="doublings from one size to the next")
    parser.add_argument("--deadline", type=float, default=30.0, help="seconds after which a request has no answer")
    parser.add_argument("--only", default="", help="a pattern: fields and pairs whose name has it")
    parser.add_argument("--every", action="store_true", help="fields of one form in every table, not in one alone")
    parser.add_argument("--pairs", action="store_true", help="the pairs alone")
    parser.add_argument("--lock", type=Path, help="a file that is locked while something is measured in turns")
    parser.add_argument("--table", action="store_true", help="write the record as Markdown and measure nothing")
    options = parser.parse_args(words)
    if options.table:
        _tell(table(options.record))
        return 0
    sys.setrecursionlimit(_DEEP)
    return 1 if asyncio.run(run(options)) else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is ended, too
    sys.exit(main())
