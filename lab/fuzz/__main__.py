"""`python -m lab.fuzz`: random texts, each of which has only one right answer (docs/proof.md).

The rows of the contract suite (tests/contracts/rows) say how each drafter is built on a tiny model, so it runs in a
checkout. Exit status 0: no difference, and every share of the run is there.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from lab.conformance.__main__ import load_rows
from lab.fuzz.journal import Journal, Totals
from lab.fuzz.run import Record
from lab.fuzz.session import Session, leave_at_once
from lab.source import digest_source
from outdraft import OutdraftError

TELL_EVERY = 100  # cases


def main(words: list[str] | None = None) -> int:
    """0 if every text is the right one and nothing is missing."""
    parser = argparse.ArgumentParser(prog="python -m lab.fuzz", description=__doc__)
    parser.add_argument("--texts", type=int, default=10_000, help="how many texts at least (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="base seed: another one, other cases")
    parser.add_argument("--out", type=Path, help="record, a line a case; an interrupted run goes on from it")
    parser.add_argument("--case", type=int, action="append", help="this case only, printed whole; may be repeated")
    parser.add_argument("--plant", metavar="VERIFIER", help="this rule in the exact one's place: it must be found out")
    parser.add_argument("--tests", type=Path, default=Path("tests"), help="the checkout's tests, which hold the rows")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)  # case numbers come on stdin
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    again = ["--seed", str(given.seed), "--tests", str(given.tests)]
    again += ["--plant", given.plant] if given.plant else []
    with TemporaryDirectory() as folder:
        session = None
        try:
            rows = load_rows(given.tests)
            session = Session(folder=Path(folder), rows=rows, seed=given.seed, plant=given.plant, words=again)
            if given.serve:
                session.serve(sys.stdin, sys.stdout)
                return 0
            if given.case:
                return _repeat(session, given.case)
            head = {"seed": given.seed, "plant": given.plant, "rows": len(rows), "source": digest_source()}
            return _run(session, Journal(given.out, head), given.texts)
        except OutdraftError as error:
            sys.stderr.write(f"error: {error}\n")
            return 2
        finally:
            if session is not None:
                session.close()


def _run(session: Session, journal: Journal, num_texts: int) -> int:
    for record in session.run_until(num_texts, journal):
        if record.difference is not None:
            _tell(record)
        if record.hung:
            leave_at_once()  # started again it goes on with the next case
        if len(journal.records) % TELL_EVERY == 0:
            sys.stderr.write(f"{len(journal.records)} cases, " + Totals.of(journal.records.values()).tell())
    totals = Totals.of(journal.records.values())
    missing = list(totals.missing(session.drafters))
    sys.stdout.write(totals.tell() + "".join(f"missing: {line}\n" for line in missing))
    return 1 if totals.differing or missing else 0


def _repeat(session: Session, numbers: list[int]) -> int:
    records = [session.run(number) for number in numbers]
    for record in records:
        _tell(record)
    return 1 if any(record.difference is not None for record in records) else 0


def _tell(record: Record) -> None:
    sys.stdout.write(json.dumps(asdict(record)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
