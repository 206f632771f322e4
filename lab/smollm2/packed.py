"""A model's answers in few bytes: what `batch_answers.py` writes, a hundred thousand answers in about 30 MB.

    python -m lab.smollm2.packed account ANSWERS-*.npz.xz                   tokens by kind and temperature, loops, ends
    python -m lab.smollm2.packed unpack ANSWERS-*.npz.xz answers.jsonl.gz   lines that `outdraft train --data` reads

A file is a NumPy archive (.npz) compressed by xz, n answers in arrays of n numbers but for the ids, which lie one
answer behind the other:

    prompt_ids, answer_ids      uint16    prompt_lens, answer_lens   uint16    kinds   uint8   index in `names`
    temperatures   uint8 hundredths       ended, loops, second       bool      names   the kinds' names

`ended`: at an end token, which is the answer's last. `loops`: a run of 12 tokens stands three times in it; a draft
does not learn from such an answer. `second`: the answer to a user's second turn.
"""

import argparse
import gzip
import io
import json
import lzma
import sys
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Seq
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

GRAM = 12  # tokens in a row ...
TIMES = 3  # ... that stand so often in an answer that loops
_BLOCK = 1 << 22  # bytes that one thread compresses
_KNOWN: list[Any] = [{"id": lzma.FILTER_LZMA2, "preset": 4, "lc": 2, "lp": 1, "pb": 1}]  # numbers of two bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer, as the sampler hands it over."""

    prompt: Seq[int]
    ids: NDArray[np.uint16]
    kind: str
    temperature: float
    ended: bool
    second: bool


def pack(answers: Seq[Answer]) -> dict[str, NDArray[Any]]:
    """The arrays of a file."""
    names = sorted({one.kind for one in answers})
    ids = [one.ids for one in answers]
    lens = np.array([len(one) for one in ids], np.uint16)
    none = np.zeros(0, np.uint16)
    flat = np.concatenate([none, *ids])
    return {
        "prompt_ids": np.concatenate([none, *(np.asarray(one.prompt, np.uint16) for one in answers)]),
        "prompt_lens": np.array([len(one.prompt) for one in answers], np.uint16),
        "answer_ids": flat,
        "answer_lens": lens,
        "kinds": np.array([names.index(one.kind) for one in answers], np.uint8),
        "temperatures": np.array([round(100 * one.temperature) for one in answers], np.uint8),
        "ended": np.array([one.ended for one in answers], np.bool_),
        "loops": find_loops(flat, lens),
        "second": np.array([one.second for one in answers], np.bool_),
        "names": np.array(names),
    }


def find_loops(ids: NDArray[np.uint16], lens: NDArray[np.uint16]) -> NDArray[np.bool_]:
    """In which answers a run of 12 tokens stands three times: ids [sum of n lengths] -> [n]."""
    owner = np.repeat(np.arange(len(lens)), lens)
    looping = np.zeros(len(lens), np.bool_)
    if (runs := len(ids) - GRAM + 1) <= 0:
        return looping
    factors = np.random.default_rng(0).integers(1, 1 << 63, GRAM + 1, dtype=np.uint64) | np.uint64(1)
    sums = owner[:runs].astype(np.uint64) * factors[GRAM]  # of 64 bits, so that no two different runs meet
    for i in range(GRAM):
        mixed = (ids[i : i + runs].astype(np.uint64) + np.uint64(1)) * factors[i]
        sums += mixed ^ (mixed >> np.uint64(29))
    whole = owner[:runs] == owner[GRAM - 1 :]
    _, first, counts = np.unique(sums[whole], return_index=True, return_counts=True)
    looping[owner[:runs][whole][first[counts >= TIMES]]] = True
    return looping


def write(answers: Seq[Answer], stem: Path, files: int = 4) -> list[Path]:
    """STEM-0.npz.xz and so on, each whole in itself."""
    paths, blocks = [], []
    for i in range(files):
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **pack(answers[i::files]))
        raw = buffer.getvalue()
        blocks.append([raw[at : at + _BLOCK] for at in range(0, len(raw), _BLOCK)])
    with ThreadPoolExecutor() as pool:  # the library lets go of Python's lock
        made = [[pool.submit(lzma.compress, block, filters=_KNOWN) for block in own] for own in blocks]
    for i, own in enumerate(made):
        paths.append(stem.with_name(f"{stem.name}-{i}.npz.xz"))
        paths[-1].write_bytes(b"".join(block.result() for block in own))
    return paths


def read(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of one file."""
    with np.load(io.BytesIO(lzma.decompress(path.read_bytes()))) as arrays:
        return {name: arrays[name] for name in arrays.files}


def examples(path: str | Path, *, loops: bool = False) -> Iterator[dict[str, Any]]:
    """The lines that `outdraft train --data` reads, of one file. `loops`: also the answers that loop."""
    arrays = read(Path(path))
    prompts = np.split(arrays["prompt_ids"], np.cumsum(arrays["prompt_lens"], dtype=np.int64))
    answers = np.split(arrays["answer_ids"], np.cumsum(arrays["answer_lens"], dtype=np.int64))
    names = arrays["names"].tolist()
    for i, (prompt, answer) in enumerate(zip(prompts[:-1], answers[:-1], strict=True)):  # what stands behind is empty
        if loops or not arrays["loops"][i]:
            yield {
                "prompt_token_ids": prompt.tolist(),
                "token_ids": answer.tolist(),
                "finish_reason": "stop" if arrays["ended"][i] else "length",
                "temperature": int(arrays["temperatures"][i]) / 100,
                "kind": names[arrays["kinds"][i]],
            }


def account(paths: Iterable[Path]) -> dict[str, Any]:
    """Answers and tokens: all, by kind, by temperature, and of those that loop, end, or answer a second turn."""
    counts: dict[str, list[int]] = {}
    for path in paths:
        arrays = read(path)
        lens = arrays["answer_lens"].astype(np.int64)
        rows = {"all": np.ones(len(lens), np.bool_)} | {name: arrays[name] for name in ("ended", "loops", "second")}
        rows |= {f"kind {name}": arrays["kinds"] == i for i, name in enumerate(arrays["names"].tolist())}
        rows |= {f"temperature {t / 100}": arrays["temperatures"] == t for t in np.unique(arrays["temperatures"])}
        rows |= {f"loops at {t / 100}": arrays["loops"] & (arrays["temperatures"] == t) for t in (0, 70, 85, 100)}
        for name, chosen in rows.items():
            total = counts.setdefault(name, [0, 0])
            total[0] += int(chosen.sum())
            total[1] += int(lens[chosen].sum())
    return {name: {"answers": count, "tokens": tokens} for name, (count, tokens) in sorted(counts.items())}


def main() -> int:
    """The two commands above."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("account", "unpack"))
    parser.add_argument("paths", type=Path, nargs="+")
    asked = parser.parse_args()
    if asked.what == "account":
        sys.stdout.write("".join(f"{name}: {json.dumps(one)}\n" for name, one in account(asked.paths).items()))
        return 0
    *sources, out = asked.paths
    with gzip.open(out, "wt", encoding="utf-8", compresslevel=1) as file:
        for source in sources:
            file.writelines(json.dumps(line) + "\n" for line in examples(source))
    return 0


if __name__ == "__main__":
    sys.exit(main())
