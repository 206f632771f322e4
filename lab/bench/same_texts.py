"""`python -m lab.bench.same_texts`: is a text with a draft model the text that the same engine writes without one?

25 questions of the suite `real`, at equal distances, as SmolLM2's own chats; greedy, 256 tokens each, nothing ends a
text before. Every engine in the number formats that it is usually run in, in a process of its own. Nothing is timed, so
the machine need not be quiet. An interrupted run goes on with --out; --table shows a record without any engine.
"""

import argparse
import json
import lzma
import sys
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any

from lab.bench.peers.process import PeerMissing
from lab.bench.peers.setups import STORED, Setup, Stage, Started, read_places, start
from lab.bench.peers.spec import KINDS
from lab.bench.peers.texts import Record, against_plain, read_prompts, says, setup_of
from outdraft.bench.load.over_http import PeerError
from outdraft.bench.shelf import Shelf
from outdraft.options.errors import OutdraftError
from outdraft.weights.hub import resolve

K = 4
KEPT = Path(__file__).parent / "real" / "same_texts.jsonl.xz"


def line_up(engines: Seq[str]) -> list[Setup]:
    """Plain decoding and a draft model in each engine and number format; of ours also what drafts by default."""
    formats = {"outdraft": (STORED, "bfloat16"), "llama_cpp": (STORED,)}
    found = []
    for engine in engines:
        for weights in formats.get(engine, ("bfloat16", "float32")):
            found += [
                Setup(engine=engine, weights=weights),
                Setup(engine=engine, weights=weights, mode="assisted", k=K),
            ]
            more = ("default", "eagle3") if engine == "outdraft" else ()
            found += [Setup(engine=engine, weights=weights, mode=mode) for mode in more]
    return found


def table(lines: Seq[dict[str, Any]]) -> str:
    """Markdown, from the lines of a record."""
    texts: dict[Setup, dict[str, list[int]]] = {}
    for line in lines:
        texts.setdefault(setup_of(line), {})[line["prompt"]] = line["tokens"]
    rows = ["| | texts other than its own plain decoding's |", "| --- | --- |"]
    rows += [f"| {setup.label} | {says(found)} |" for setup, found in against_plain(texts)]
    return "\n".join(rows) + "\n"


def main(words: Seq[str] | None = None) -> int:
    """Write what is not there yet, and show; 2 for what cannot be had."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.bench.same_texts", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--model", default="smollm2", help="a GGUF file with a draft model beside it")
    parser.add_argument("--engine", action="append", choices=("outdraft", *KINDS), help="may be repeated")
    parser.add_argument("--at", action="append", default=[], metavar="ENGINE=PATH", help="its Python, or llama-server")
    parser.add_argument("--prompts", type=int, default=25)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache", metavar="DIR", help="where made files are kept (default: ~/.cache/outdraft)")
    parser.add_argument("--out", type=Path, metavar="FILE.jsonl", help="the record; without it, the kept one is shown")
    asked = parser.parse_args(words)
    if asked.out is None:
        kept = lzma.decompress(KEPT.read_bytes()).decode().splitlines()
        sys.stdout.write(table([json.loads(line) for line in kept[1:]]))
        return 0
    try:
        target = resolve(asked.model)
        prompts = read_prompts(target, asked.prompts)
        header = {"model": target.name, "tokens": asked.tokens, "threads": asked.threads, "prompts": list(prompts)}
        record = Record(asked.out, header)
        stage = Stage(
            target=target,
            shelf=Shelf(asked.cache),
            places=read_places(asked.at),
            threads=asked.threads,
            max_len=max(map(len, prompts.values())) + asked.tokens + 16,
        )
        setups = line_up(asked.engine or ("outdraft", "llama_cpp", "transformers", "vllm"))
        for _, group in groupby(setups, lambda setup: setup.alone):
            _write(list(group), stage, prompts, asked.tokens, record)
    except OutdraftError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(table(record.lines))
    return 0


def _write(group: Seq[Setup], stage: Stage, prompts: Mapping[str, Seq[int]], tokens: int, record: Record) -> None:
    """The texts that the record has not, question by question; what is not installed or fails is named and left out."""
    texts = record.texts()
    missing = {setup: [name for name in prompts if name not in texts.get(setup, {})] for setup in group}
    with ExitStack() as closing:
        started: dict[Setup, Started] = {}
        for setup in group:
            if missing[setup]:
                try:
                    started[setup] = start(setup, stage)
                except (PeerMissing, PeerError) as error:
                    sys.stderr.write(f"{setup.label} is left out: {error}\n")
                else:
                    closing.callback(started[setup].close)
        for name, ids in prompts.items():
            for setup, engine in started.items():
                if name in missing[setup]:
                    record.add(
                        setup, name, {"tokens": engine.write(ids, tokens)["tokens"], "versions": engine.versions}
                    )


if __name__ == "__main__":
    sys.exit(main())
