"""`python -m mutation AREA...`: try the next mutants of these areas; the record says what was tried before.

PYTHONPATH=src:tests nice -n 19 python -m mutation verify sampling     the background run; stop it and start it again
PYTHONPATH=src:tests python -m mutation --score                        where it stands
PYTHONPATH=src:tests python -m mutation --again verify                 survivors once more, with more tests
PYTHONPATH=src:tests python -m mutation --show KEY                     one mutant as a difference of the source
"""

import argparse
import difflib
import sys
from pathlib import Path
from time import monotonic

from mutation import trial
from mutation.cover import NEAR, cover_of
from mutation.mutants import ROOT, SOURCE, mutants_of, sample
from mutation.record import GOAL, GOALS, Record, score

SEED = 10


def main() -> int:
    """0, or 2 if nothing was asked for."""
    parser = argparse.ArgumentParser(prog="python -m mutation", description=__doc__.split("\n")[0])
    parser.add_argument("areas", nargs="*", help=f"of {', '.join(NEAR)}; all by default")
    parser.add_argument("--count", type=int, help="mutants of each area (default: 100, drafters 200)")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of tests a mutant, as measured alone")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no other mutant after so long")
    parser.add_argument("--state", type=Path, default=ROOT / ".mutation", help="where the coverage of tests is kept")
    parser.add_argument("--again", action="store_true", help="try survivors again, with ten times the budget")
    parser.add_argument("--score", action="store_true", help="say where it stands, and nothing else")
    parser.add_argument("--show", metavar="KEY", help="print a mutant")
    given = parser.parse_args()
    areas = given.areas or list(NEAR)
    record = Record()
    if given.show:
        return _show(given.show, areas)
    if not given.score:
        trial.preload()
        end = monotonic() + 60 * given.minutes
        for area in areas:
            _try(area, record, given, end)
    for area in areas:
        wanted = {mutant.key for mutant in sample(area, SEED, _count(area, given))}
        record.forget(area, wanted)
        sys.stdout.write(f"{area}: {score(record.of(area))}\n")
    return 0


def _try(area: str, record: Record, given: argparse.Namespace, end: float) -> None:
    cover, sound = cover_of(area, given.state), set[str]()
    for mutant in sample(area, SEED, _count(area, given)):
        known = record.known.get(mutant.key)
        if monotonic() > end:
            return
        if known is not None and not (given.again and known["verdict"] in (trial.SURVIVED, trial.UNTESTED)):
            continue
        verdict, why = trial.try_mutant(mutant, cover, given.budget * (10 if given.again else 1), sound)
        record.add({"area": area, **mutant.tell(), "verdict": verdict, "why": why})
        sys.stdout.write(f"{area} {mutant.key} {mutant.file}:{mutant.line} {mutant.operator}: {verdict}, {why}\n")
        sys.stdout.flush()


def _count(area: str, given: argparse.Namespace) -> int:
    return given.count or GOALS.get(area, GOAL)[0]


def _show(key: str, areas: list[str]) -> int:
    mutant = next(one for area in areas for one in mutants_of(area, SEED) if one.key == key)
    before, after = (SOURCE / mutant.file).read_text("utf-8"), mutant.apply()
    names = (mutant.file, f"{mutant.file} with {mutant.operator}")
    sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), after.splitlines(True), *names, n=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
