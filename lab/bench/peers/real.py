"""`python -m lab.bench.peers.real --out FILE.jsonl --at llama_cpp=PATH`: SmolLM2 in every engine, on real questions.

Ours from the GGUF file and from its weights in bfloat16, llama.cpp from the same file, the others from the dequantized
weights. The same ids, length and number of threads, greedy, nothing ends a text before; no engine keeps anything of
an earlier text or run. All are loaded at first; only one works at a time, and they take turns at every question. A
round that would end after --minutes is not begun; again with the same --out, the run goes on.
"""

import argparse
import json
import sys
from collections.abc import Sequence as Seq
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

from lab.bench.peers.process import PeerMissing
from lab.bench.peers.real_table import table
from lab.bench.peers.setups import STORED, Setup, Stage, Started, read_places, start
from lab.bench.peers.spec import KINDS
from lab.bench.peers.texts import Record, read_prompts
from outdraft.bench.load.over_http import PeerError
from outdraft.bench.machine import busy_note, describe
from outdraft.bench.shelf import Shelf
from outdraft.options.errors import OutdraftError
from outdraft.weights.hub import resolve

K = 4
OURS = ("plain", "default", "eagle3", "ngram")
MODES = {
    "llama_cpp": ("plain", "assisted", "lookup", "ngram-mod"),
    "transformers": ("plain", "assisted", "lookup"),
    "openvino": ("plain", "assisted", "lookup"),
    "vllm": ("plain", "assisted", "lookup"),
}
FORMATS = {"llama_cpp": STORED, "transformers": "float32", "openvino": "int8", "vllm": "bfloat16"}
_WARM = 16  # tokens of the text before the first round


def line_up(engines: Seq[str], formats: dict[str, str]) -> list[Setup]:
    """Every setup that takes part, if its engine is there."""
    found = []
    if "outdraft" in engines:
        found += [Setup(engine="outdraft", weights=form, mode=mode) for form in (STORED, "bfloat16") for mode in OURS]
    for engine in engines:
        for mode in MODES.get(engine, ()):
            guesses = K if mode in ("assisted", "lookup") else 0
            found.append(Setup(engine=engine, weights=formats[engine], mode=mode, k=guesses))
    return found


def run(
    started: dict[Setup, Started],
    prompts: dict[str, list[int]],
    record: Record,
    *,
    tokens: int,
    rounds: int,
    end: float,
) -> None:
    """All rounds. The order of the setups moves on by one at every question."""
    done = {(tuple(line["setup"]), line["prompt"], line["round"]) for line in record.lines}
    order, longest = list(started), 0.0
    for number in range(rounds):
        for name, ids in prompts.items():
            began = monotonic()
            if began + longest > end:
                sys.stderr.write(f"round {number + 1} ends before {name}: the minutes are over\n")
                return
            for setup in order:
                key = (setup.engine, setup.weights, setup.mode, setup.k)
                if (key, name, number) not in done:
                    told = started[setup].write(ids, tokens, still=True)
                    record.add(setup, name, {"round": number, **told})
            order = [*order[1:], order[0]]
            longest = max(longest, monotonic() - began)


def main(words: Seq[str] | None = None) -> int:
    """Measure what is not in the record, and show it; 2 for what cannot be had."""
    summary = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m lab.bench.peers.real", description=summary)
    parser.add_argument("--model", default="smollm2", help="a GGUF file with its drafts beside it")
    parser.add_argument("--engine", action="append", choices=("outdraft", *KINDS), help="may be repeated")
    parser.add_argument("--at", action="append", default=[], metavar="ENGINE=PATH", help="its Python, or llama-server")
    parser.add_argument("--format", action="append", default=[], metavar="ENGINE=WEIGHTS", help=f"instead of {FORMATS}")
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=24.0)
    parser.add_argument("--cache", metavar="DIR", help="where made files are kept (default: ~/.cache/outdraft)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl", help="the record")
    parser.add_argument("--table", action="store_true", help="only show the record")
    asked = parser.parse_args(words)
    if asked.table:
        sys.stdout.write(table([json.loads(line) for line in asked.out.read_text().splitlines()][1:]))
        return 0
    end = monotonic() + 60 * asked.minutes
    try:
        target = resolve(asked.model)
        prompts = read_prompts(target, asked.prompts)
        header = {"model": target.name, "tokens": asked.tokens, "machine": describe("cpu") | {"threads": asked.threads}}
        record = Record(asked.out, {**header, "prompts": list(prompts)})
        max_len = max(map(len, prompts.values())) + asked.tokens + 16
        stage = Stage(
            target=target,
            shelf=Shelf(asked.cache),
            places=read_places(asked.at),
            threads=asked.threads,
            max_len=max_len,
        )
        setups = line_up(asked.engine or ["outdraft", *MODES], FORMATS | read_places(asked.format))
        with ExitStack() as closing:
            started = _load(setups, stage, closing, next(iter(prompts.values())))
            sys.stderr.write(f"{len(started)} setups are loaded; {busy_note()}\n")
            run(started, prompts, record, tokens=asked.tokens, rounds=asked.rounds, end=end)
    except OutdraftError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(table(record.lines))
    return 0


def _load(setups: Seq[Setup], stage: Stage, closing: ExitStack, ids: Seq[int]) -> dict[Setup, Started]:
    """Those that start and write a short text; why the others are left out goes to stderr."""
    found: dict[Setup, Started] = {}
    for setup in setups:
        try:
            found[setup] = engine = start(setup, stage)
            closing.callback(engine.close)
            engine.write(ids, _WARM, still=True)
        except (PeerMissing, PeerError) as error:
            found.pop(setup, None)
            sys.stderr.write(f"{setup.label} is left out: {error}\n")
    return found


if __name__ == "__main__":
    sys.exit(main())
