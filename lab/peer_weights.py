"""`python -m lab.peer_weights MODEL [--gguf]`: makes a model for a server that you start, and prints where it is.

The weights are those before our rounding, as `outdraft bench --peer` gives them to other engines: a Hugging Face
directory, or the same as a GGUF file, bit for bit.
"""

import argparse
import sys

from lab.bench.peers.weights import whole_gguf
from outdraft.bench.made import make_model
from outdraft.bench.shelf import Shelf
from outdraft.options.errors import OutdraftError


def main(words: list[str] | None = None) -> int:
    """Make it and print its path; 2 where it cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m lab.peer_weights", description="A model for a peer's server.")
    parser.add_argument("model", help="a directory, or zoo:NAME[@WIDTHxDEPTH]")
    parser.add_argument("--gguf", action="store_true", help="as a GGUF file, for llama-server")
    parser.add_argument("--cache", metavar="DIR", help="where made models are kept (default: ~/.cache/outdraft)")
    asked = parser.parse_args(words)
    try:
        shelf = Shelf(asked.cache)
        path = make_model(asked.model, shelf).original
        path = whole_gguf(path, shelf) if asked.gguf else path
    except OutdraftError as error:
        sys.stderr.write(f"outdraft: {error}\n")
        return 2
    sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
