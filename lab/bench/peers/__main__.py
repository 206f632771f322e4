"""`python -m lab.bench.peers`: `outdraft bench` with other engines in the same rounds.

    python -m lab.bench.peers --model zoo:draft@8x20 --suite prose --peer transformers:mode=static

`--peer` names one as `spec` reads it and may be repeated; all other flags are those of `outdraft bench`.
"""

import argparse
import sys
from collections.abc import Sequence as Seq
from contextlib import ExitStack
from functools import partial

from lab.bench.peers.entrant import join_peers
from lab.bench.peers.spec import parse_peer
from outdraft.cli.commands import bench
from outdraft.cli.options import add_flags, build
from outdraft.options.errors import OutdraftError


def main(words: Seq[str] | None = None) -> int:
    """Measure, as `outdraft bench` does; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.peers", allow_abbrev=False)
    add_flags(parser, bench.Options)
    given = parser.parse_args(words)
    names, given.peer = given.peer or (), ()
    try:
        peers = [parse_peer(name) for name in names]
        with ExitStack() as closing:
            return bench.run(build(bench.Options, given), partial(join_peers, peers, closing) if peers else None)
    except OutdraftError as error:
        sys.stderr.write(f"lab.bench.peers: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
