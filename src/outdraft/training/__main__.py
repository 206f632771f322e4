"""python -m outdraft.training RECIPE --data DIR --out DIR [--resume] [--export]

Progress lines go to standard error. SIGUSR1, or a file OUT/<name>/<run>/finish, starts the decay; Ctrl-C saves and
stops.
"""

import argparse
import sys
from pathlib import Path

from outdraft.options.errors import OutdraftError
from outdraft.training.config import read_recipe
from outdraft.training.report import report
from outdraft.training.run import run_recipe


def main() -> int:
    """Read the command line and run one training recipe."""
    parser = argparse.ArgumentParser(prog="python -m outdraft.training", description=__doc__)
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
