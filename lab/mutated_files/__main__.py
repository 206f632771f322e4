"""`python -m lab.mutated_files --count 5000`: see `lab.sweep.run`."""

import sys

from lab.sweep.run import main

if __name__ == "__main__":
    sys.exit(main("lab.mutated_files.cases", 5000))
