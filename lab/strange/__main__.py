"""`python -m lab.strange --count 5000`: see `lab.sweep.run`."""

import sys

from lab.sweep.run import main

if __name__ == "__main__":
    sys.exit(main("lab.strange.cases", 5000))
