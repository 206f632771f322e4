"""`python -m outdraft.testing.mutated_files --count 5000`: see `outdraft.testing.sweep.run`."""

import sys

from outdraft.testing.sweep.run import main

if __name__ == "__main__":
    sys.exit(main("outdraft.testing.mutated_files.cases", 5000))
