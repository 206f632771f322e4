"""python -m lab.zoo RECIPE --data DIR --out DIR [--resume] [--export]

Progress lines go to standard error. SIGUSR1, or a file OUT/<name>/<run>/finish, starts the decay; Ctrl-C saves and
stops.
"""

import argparse
import sys
import time
from pathlib import Path

from lab.zoo.recipe import read_recipe
from lab.zoo.run import run_recipe
from outdraft.options.errors import OutdraftError


def report(line: str) -> None:
    """Write one line of progress with the time of day."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


def main() -> int:
    """Read the command line and run one training recipe."""
    parser = argparse.ArgumentParser(prog="python -m lab.zoo", description=__doc__)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="folder of the packed corpora")
    parser.add_argument("--out", type=Path, required=True, help="where results and checkpoints go")
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint")
    parser.add_argument("--export", action="store_true", help="only write out what the checkpoint holds")
    given = parser.parse_args()
    try:
        run_recipe(
            read_recipe(given.recipe), given.data, given.out, report, resume=given.resume, export_only=given.export
        )
    except OutdraftError as error:
        report(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
