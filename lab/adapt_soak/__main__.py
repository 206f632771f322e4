"""`python -m lab.adapt_soak OUT`: a draft that keeps learning, through many swaps, kills and requests.

    swaps    other versions are adopted while ragged batches run; every text is compared with that of plain decoding
    audit    unseeded texts at temperature 1 meanwhile, against the target's own distributions; and with a planted fault
    kills    SIGKILL to a learner, to a process that publishes, to an engine: the next engine has the version that
             `current` names, whole, and the same texts
    soak     many short requests beside a learner that works: texts, and medians of the memory of both processes over
             the first quarter of the batches and over the last, in MiB

On zoo:target and zoo:eagle3. A stage that OUT/record.json holds is not run again. Data out: that record, and a line for
each stage; 1 where anything was wrong.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from lab.adapt_soak.ground import Record
from lab.adapt_soak.kills import kills
from lab.adapt_soak.soak import soak
from lab.adapt_soak.swaps import audit, swaps

STAGES: dict[str, tuple[Callable[[Path, int], Record], int]] = {
    "swaps": (swaps, 200),
    "audit": (audit, 600),
    "kills": (kills, 21),
    "soak": (soak, 20_000),
}


def main() -> int:
    """Run what is not in the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--stages", nargs="*", choices=[*STAGES], default=[*STAGES])
    parser.add_argument("--count", type=int, help="in place of the stage's own")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    place = asked.out / "record.json"
    record: Record = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {}
    for name in asked.stages:
        if name not in record:
            run, count = STAGES[name]
            record[name] = run(asked.out, asked.count or count)
            place.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        sys.stdout.write(f"{name}: {json.dumps(record[name])}\n")
        sys.stdout.flush()
    return int(any(record[name]["wrong"] for name in asked.stages))


if __name__ == "__main__":
    sys.exit(main())
