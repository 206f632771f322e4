"""Token streams on disk, and batches that are a pure function of (seed, step): a resumed run sees the same data.

    documents -> train | validation (by hash) -> ids, each document closed by <|endoftext|>
    OUT/data/<digest>/<split>-<source>.npy      digest: of the sources, of what is held out, and of the tokenizer

A sequence is a window at a random place of one source's stream; copies start at a document's beginning.
"""

import hashlib
import json
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from lab.zoo.copies import make_copies
from lab.zoo.recipe import DataConfig
from lab.zoo.sources import is_held_out, read_documents
from lab.zoo.tokenizer import END_ID
from outdraft.options.new_file import new_file

COPIES = "copies"
SPLITS = ("train", "valid")
Ids = NDArray[np.uint16]


def stream_folder(data: DataConfig, tokenizer_dir: Path) -> str:
    """The name of the folder of these streams: another one for whatever else would be in them."""
    sources = [{**asdict(source), "share": None} for source in data.sources]  # shares are for those who read streams
    told: list[object] = [sources, data.num_copies, data.holdout_percent, data.holdout_seed]
    told += [platform.python_version() for source in data.sources if source.path == "stdlib"]
    whole = hashlib.sha256(json.dumps(told).encode() + (tokenizer_dir / "tokenizer.json").read_bytes())
    return whole.hexdigest()[:16]


def prepare(
    data: DataConfig, data_dir: Path, tokenizer: Tokenizer, out_dir: Path, report: Callable[[str], None]
) -> None:
    """Tokenise every source into two streams, unless all of them are there."""
    texts: dict[str, dict[str, list[str]]] = {}
    wanted = [s.name for s in data.sources] + [COPIES]
    if all((out_dir / f"{split}-{name}.npy").exists() for split in SPLITS for name in wanted):
        return
    report(f"there are no streams of these sources, hold-outs and tokenizer yet: {out_dir} is made")
    for source in data.sources:
        split: dict[str, list[str]] = {"train": [], "valid": []}
        for text in read_documents(source, data_dir):
            split["valid" if is_held_out(text, data) else "train"].append(text)
        texts[source.name] = split
    copies: dict[str, list[str]] = {}
    for seed, name in enumerate(SPLITS):
        prose = [t for s in data.sources if s.path != "stdlib" for t in texts[s.name][name]]
        code = [t for s in data.sources if s.path == "stdlib" for t in texts[s.name][name]]
        count = data.num_copies if name == "train" else max(1, data.num_copies // 40)
        copies[name] = list(make_copies(prose, code, count, seed))
    for source_name, split in {**texts, COPIES: copies}.items():
        for name in SPLITS:
            ids = encode_stream(tokenizer, split[name])
            with new_file(out_dir / f"{name}-{source_name}.npy") as beside, beside.open("wb") as file:
                np.save(file, ids)
            chars = sum(len(t.encode()) for t in split[name])
            report(f"{name} {source_name}: {len(split[name])} documents, {len(ids)} tokens, {chars} bytes")


def encode_stream(tokenizer: Tokenizer, texts: list[str]) -> Ids:
    """All texts as one stream, each followed by the end token: [T]."""
    pieces: list[Ids] = []
    for i in range(0, len(texts), 64):
        for encoding in tokenizer.encode_batch(texts[i : i + 64], add_special_tokens=False):
            pieces.append(np.array([*encoding.ids, END_ID], dtype=np.uint16))
    return np.concatenate(pieces) if pieces else np.zeros(0, np.uint16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One source's ids, its weight, and where sequences may start (None: anywhere)."""

    name: str
    ids: Ids  # [T]
    weight: float
    starts: NDArray[np.int64] | None


class Sampler:
    """Batches of token ids, drawn from streams with given weights."""

    def __init__(self, streams: list[Stream], seed: int) -> None:
        self.streams = [s for s in streams if len(s.ids) > 0]
        self.seed = seed
        weights = np.array([s.weight for s in self.streams])
        self.edges = np.cumsum(weights / weights.sum())

    def rows(self, step: int, first: int, count: int, length: int) -> Tensor:
        """Rows first..first+count of the batch of this step: [count, length], int64."""
        return torch.from_numpy(np.stack([self._row(step, first + i, length) for i in range(count)]))

    def _row(self, step: int, row: int, length: int) -> NDArray[np.int64]:
        rng = np.random.default_rng([self.seed, step, row])
        stream = self.streams[min(int(np.searchsorted(self.edges, rng.random())), len(self.streams) - 1)]
        ids = stream.ids
        last = max(1, len(ids) - length)
        if stream.starts is None:
            start = int(rng.integers(last))
        else:
            start = int(stream.starts[rng.integers(max(1, int(np.searchsorted(stream.starts, last))))])
        window = ids[start : start + length].astype(np.int64)
        return np.pad(window, (0, length - len(window)), constant_values=END_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOptions:
    """The [task] table of a mixture's recipe."""

    num_texts: int
    num_valid: int  # windows of valid.jsonl, and as many of test.jsonl
    length: int = 257  # tokens of a window
    copies_share: float = 0.0  # documents that repeat themselves; 0: as the data file says


def halve(streams: list[Stream]) -> tuple[list[Stream], list[Stream]]:
    """The streams cut in two, in the middle or at the start nearest to it: no token of a stream is in both parts.

    A copy may repeat a passage that stands in the other part of another stream.
    """
    first, second = [], []
    for stream in streams:
        starts, cut = stream.starts, len(stream.ids) // 2
        if starts is not None:
            cut = int(starts[np.abs(starts - cut).argmin()])
        first.append(replace(stream, ids=stream.ids[:cut], starts=None if starts is None else starts[starts < cut]))
        later = None if starts is None else starts[starts >= cut] - cut
        second.append(replace(stream, ids=stream.ids[cut:], starts=later))
    return first, second


def open_streams(data: DataConfig, data_dir: Path, split: str) -> list[Stream]:
    """The streams of a split with the recipe's weights."""
    shares = {s.name: s.share for s in data.sources}
    whole = sum(shares.values())
    weights = {name: share / whole * (1 - data.copies_share) for name, share in shares.items()}
    weights[COPIES] = data.copies_share
    streams = []
    for name, weight in weights.items():
        ids = np.load(data_dir / f"{split}-{name}.npy", mmap_mode="r")
        starts = np.flatnonzero(ids == END_ID)[:-1] + 1 if name == COPIES else None
        starts = np.insert(starts, 0, 0) if starts is not None else None
        streams.append(Stream(name=name, ids=ids, weight=weight, starts=starts))
    return streams
