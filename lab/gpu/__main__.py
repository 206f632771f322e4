"""`python -m lab.gpu`: every figure that docs/gpu.md calls unmeasured, in less than ten minutes.

    speed     plain and drafted, graphs on and off, 100 %, 80 % and 60 % of the guesses accepted, one sequence and
              eight, products of 16, 32, 64 rows and of as many as a pass has
    profile   kernels, gaps, launches and waits of a round
    rows      how often a row's arg-max depends on the rows beside it
    peer      transformers' assisted generation with the same models
Each section is one JSON line in the file as soon as it is there; a section that fails leaves its reason instead.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from lab.gpu.pair import SIZES, Pair, make_pair
from lab.gpu.peer import time_transformers
from lab.gpu.profile import profile_rounds
from lab.gpu.rounds import Way, measure
from lab.gpu.rows import examine_rows
from outdraft.bench.machine import describe
from outdraft.engine.graphed import ROW_TILE
from outdraft.models.files.load import DTYPES
from outdraft.options.errors import OutdraftError

_RATES = (None, 1.0, 0.8, 0.6)
_TILES = (None, 16, 64)  # besides the default
Section = tuple[str, Callable[[], Any]]


def main(words: list[str] | None = None) -> int:
    """Measure and write; 0 when every section has figures."""
    asked = _parser().parse_args(words)
    began = perf_counter()
    if asked.device.startswith("cuda") and not torch.cuda.is_available():
        sys.stderr.write("outdraft: no CUDA device is here; --device cpu --size tiny tries the command itself out\n")
        return 2
    try:
        pair = make_pair(asked.size, device=asked.device, dtype=DTYPES[asked.dtype])
    except OutdraftError as error:
        sys.stderr.write(f"outdraft: {error}\n")
        return 2
    head = {"section": "machine", **describe(asked.device)}
    head |= {"device": asked.device, "size": asked.size, "dtype": asked.dtype}
    head["parameters"] = [pair.target.num_parameters, pair.draft.num_parameters]
    out = Path(asked.out)
    lines, failed = [_write(out, head, "w")], 0
    for name, work in _sections(pair, asked):
        if perf_counter() - began > 60 * asked.minutes:
            told: dict[str, Any] = {"skipped": f"{asked.minutes} minutes were over"}
        else:
            try:
                told = {"result": work()}
            except Exception as error:  # one section must not cost the others
                told = {"failed": f"{type(error).__name__}: {error}"}
        failed += "result" not in told
        lines.append(_write(out, {"section": name, **told}, "a"))
        sys.stdout.write(lines[-1])
        sys.stdout.flush()
    sys.stdout.write(f"{out}: {len(lines) - 1} sections, {failed} without figures, {perf_counter() - began:.0f} s\n")
    return 1 if failed else 0


def _sections(pair: Pair, asked: argparse.Namespace) -> Iterator[Section]:
    settings = {"tokens": asked.tokens, "repeats": asked.repeats}
    for way in _ways(asked.depth):
        rate = "real" if way.rate is None else f"{way.rate:.0%}"
        drafted = f"k={way.depth} {rate}" if way.depth else "plain"
        label = f"speed, batch {way.batch}, graphs {'on' if way.graphs else 'off'}, tile {way.tile}, {drafted}"
        yield label, partial(lambda way: asdict(measure(pair, way, **settings)), way)
    if pair.target.device.type == "cuda":
        for graphs in (True, False):
            for depth in (0, asked.depth):
                way = Way(graphs=graphs, depth=depth)
                label = f"profile, graphs {'on' if graphs else 'off'}, k={depth}"
                yield label, partial(lambda way: asdict(profile_rounds(pair, way)), way)
    for exact, tile in ((False, None), (False, ROW_TILE), (True, None)):
        found = partial(examine_rows, pair, exact=exact, tile=tile)
        yield f"rows, exact {exact}, tile {tile}", partial(lambda found: [asdict(fact) for fact in found()], found)
    yield "peer: transformers", lambda: time_transformers(pair, depth=asked.depth, **settings)


def _ways(depth: int) -> Iterator[Way]:
    """Recorded: every share of accepted guesses, every tile of the real rule. Launched: the real rule."""
    for batch in (1, 8):
        yield Way(graphs=True, depth=0, batch=batch)
        yield from (Way(graphs=True, depth=depth, rate=rate, batch=batch) for rate in _RATES)
        yield from (Way(graphs=False, depth=k, batch=batch) for k in (0, depth))
        yield from (Way(graphs=True, depth=k, batch=batch, tile=tile) for tile in _TILES for k in (0, depth))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.gpu", description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--size", default="1b", help=f"of the target: {', '.join(SIZES)}")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16", choices=sorted(DTYPES))
    parser.add_argument("--depth", type=int, default=4, help="draft tokens a round")
    parser.add_argument("--tokens", type=int, default=128, help="of each text")
    parser.add_argument("--repeats", type=int, default=3, help="timed texts; the best counts")
    parser.add_argument("--minutes", type=float, default=9, help="no new section after so long")
    parser.add_argument("--out", default="gpu-bench.jsonl")
    return parser


def _write(out: Path, told: dict[str, Any], mode: str) -> str:
    line = json.dumps(told) + "\n"
    with out.open(mode, encoding="utf-8") as file:
        file.write(line)
    return line


if __name__ == "__main__":
    sys.exit(main())
