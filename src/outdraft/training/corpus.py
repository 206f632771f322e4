"""Files of examples as one stream of ids on disk, made once for a tokenizer and found again.

    DIR/<digest>/ids.npy      int32 [T]     all examples, one after the other, each closed by the end token
                 counts.npy   bool [T]      what a draft should learn to guess
                 starts.npy   int64 [n + 1] where each example begins
                 about.json                 the accounts: done + skipped + held out = input

Which examples are held out is decided by their own ids, so neither order nor other files change it; it is one at least.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outdraft.codecs.text import TextCodec
from outdraft.options.errors import ConfigError
from outdraft.options.new_file import new_file
from outdraft.options.read_file import load_json
from outdraft.training.examples import encode, pieces_of, read_records

Ids = NDArray[np.int32]
_PIECE = 1 << 24  # tokens that are counted at once
LEAST = 2  # tokens of an example: one to read, one to guess


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """Examples of the input, and what became of them."""

    read: int
    kept: int
    held_out: int
    skipped: int  # shorter than two tokens, or with nothing that counts
    tokens: int  # kept ones
    writers: Mapping[str, int] = field(default_factory=dict)  # kept ones by the target that wrote them; "": unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCorpus:
    """Examples behind each other in one stream of T tokens."""

    ids: Ids  # [T]
    counts: NDArray[np.bool_]  # [T]
    starts: NDArray[np.int64]  # [n + 1]

    @property
    def num_examples(self) -> int:
        """How many examples the stream is made of."""
        return len(self.starts) - 1

    @property
    def digest(self) -> str:
        """16 hexadecimal digits: equal for corpora of the same examples in the same order."""
        whole = hashlib.sha256()
        for array in (self.ids, self.counts, self.starts):
            whole.update(np.ascontiguousarray(array).data)
        return whole.hexdigest()[:16]

    def count_shared(self, other: "TrainingCorpus") -> int:
        """How many of these examples are in the other corpus too, token by token."""
        own = list(self._examples())
        there = set(own)
        shared = {one for one in other._examples() if one in there}
        return sum(one in shared for one in own)

    def _examples(self) -> Iterator[bytes]:
        for start, stop in pairwise(self.starts.tolist()):
            yield self.ids[start:stop].tobytes()

    def frequencies(self, vocab_size: int) -> NDArray[np.int64]:
        """How often each token is to be guessed [V]."""
        found = np.zeros(vocab_size, np.int64)
        for start in range(0, len(self.ids), _PIECE):
            piece = slice(start, start + _PIECE)
            found += np.bincount(self.ids[piece][self.counts[piece]], minlength=vocab_size)
        return found


def open_corpus(
    files: Seq[Path], codec: TextCodec | None, vocab_size: int, cache: Path, *, held_out: float = 0.02
) -> tuple[TrainingCorpus, TrainingCorpus, Accounts]:
    """What is trained on, what is held out, and the accounts. `held_out`: the share of the examples; 0: none.

    Raises `ConfigError` for files that hold no example.
    """
    place = cache / _digest(files, codec, vocab_size, held_out)
    try:
        return _load_all(place)
    except (OSError, ValueError, EOFError, TypeError):  # it is not there yet, or damaged
        _make(files, codec, vocab_size, place, held_out)
    return _load_all(place)


def _digest(files: Seq[Path], codec: TextCodec | None, vocab_size: int, held_out: float) -> str:
    """Of the files as they are now, and of all that turns them into ids."""
    told = ["4", repr(held_out), str(vocab_size)]  # the first is the version of what is written
    if codec is not None:
        template = codec.chat_template
        told += [codec.fingerprint, repr(sorted(codec.eos_token_ids)), "" if template is None else template.source]
        told.append(repr(codec.encode("a")))  # what is put before a text: a start token, or none
    for path in files:
        about = path.stat()
        told += [str(path.resolve()), str(about.st_size), str(about.st_mtime_ns)]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]


def require_own_texts(accounts: Accounts, target: str) -> None:
    """Raise `ConfigError` unless this target wrote every example. `target`: the digest of its weights."""
    strange = accounts.kept - accounts.writers.get(target, 0)
    if strange:
        raise ConfigError(
            f"loss sequence_kd learns from what the target itself wrote, and {strange} of {accounts.kept} examples are "
            "not known to be written by it: let it write them (outdraft train answers, with the same --dtype), or "
            "take cross_entropy"
        )


def number_of(ids: NDArray[np.signedinteger]) -> float:
    """In 0..1, decided by the ids and their type: what is below a share is held out."""
    return int.from_bytes(hashlib.sha256(ids.tobytes()).digest()[:4], "big") / 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class _Example:
    """One example that something can be learned from."""

    ids: Ids  # [n]
    counts: NDArray[np.bool_]  # [n]
    writer: str  # the digest of the target that wrote it; "": not known
    number: float  # in 0..1, decided by its ids


def _make(files: Seq[Path], codec: TextCodec | None, vocab_size: int, place: Path, held_out: float) -> None:
    examples, read = _read(files, codec, vocab_size)
    lowest = min((one.number for one in examples), default=0.0)
    kept: list[_Example] = []
    held: list[_Example] = []
    for one in examples:
        is_held = one.number < held_out or (held_out > 0 and one.number == lowest)  # one at least
        (held if is_held else kept).append(one)
    named, skipped = ", ".join(map(str, files)), read - len(examples)
    if not read:
        raise ConfigError(
            f"{named}: there is no example in it: give texts, chats or answers, one a line (outdraft train answers "
            "lets the target write some)"
        )
    if not kept or (held_out and not held):
        cure = "give more examples, or hold out another share" if examples else "give longer ones"
        raise ConfigError(
            f"{named}: {read} examples, of which {len(kept)} would be trained on, {len(held)} held out, and "
            f"{skipped} are too short or have nothing to guess: {cure}"
        )
    place.mkdir(parents=True, exist_ok=True)
    _save(kept, place, "train")
    _save(held, place, "valid")
    accounts = Accounts(
        read=read,
        kept=len(kept),
        held_out=len(held),
        skipped=skipped,
        tokens=sum(len(one.ids) for one in kept),
        writers=dict(sorted(Counter(one.writer for one in kept).items())),
    )
    with new_file(place / "about.json") as beside:
        beside.write_text(json.dumps(asdict(accounts), indent=2) + "\n", encoding="utf-8")


def _read(files: Seq[Path], codec: TextCodec | None, vocab_size: int) -> tuple[list[_Example], int]:
    """The examples that are long enough and have something to guess, and how many there are in all."""
    examples, read = [], 0
    ends = sorted(codec.eos_token_ids) if codec is not None else []
    template = codec.chat_template if codec is not None else None
    for path in files:
        for where, record in read_records(path):
            read += 1
            ids, counts = encode(pieces_of(record, template, where), codec, where)
            was_written = record.get("token_ids") is not None  # by an engine, so that it is whole
            if ends and ids and not was_written:
                counts = _until_end(ids, counts, ends)
                if counts[-1] and ids[-1] not in ends:
                    ids, counts = [*ids, ends[0]], [*counts, True]
            if len(ids) < LEAST or not any(counts[1:]):
                continue
            if not 0 <= min(ids) <= max(ids) < vocab_size:
                raise ConfigError(f"{where} holds ids outside the target's vocabulary of {vocab_size}")
            whole = np.array(ids, np.int32)
            examples.append(
                _Example(
                    ids=whole,
                    counts=np.array(counts, np.bool_),
                    writer=str((record.get("target") if was_written else "") or ""),
                    number=number_of(whole),
                )
            )
    return examples, read


def _until_end(ids: list[int], counts: list[bool], ends: list[int]) -> list[bool]:
    """What counts, but for what a chat template puts behind an answer's end token: no engine writes on there."""
    found, is_answer, is_over = list(counts), False, False
    for i, token in enumerate(ids):
        if not counts[i]:
            is_answer, is_over = True, False  # a prompt, behind which an answer begins
        elif is_answer:
            found[i] = not is_over
            is_over = is_over or token in ends
    return found


def _save(examples: Seq[_Example], place: Path, split: str) -> None:
    nothing, lengths = np.zeros(0, np.int32), [len(one.ids) for one in examples]
    for name, array in (
        ("ids", np.concatenate([nothing, *(one.ids for one in examples)])),
        ("counts", np.concatenate([nothing.astype(np.bool_), *(one.counts for one in examples)])),
        ("starts", np.cumsum([0, *lengths], dtype=np.int64)),
    ):
        with new_file(place / f"{split}-{name}.npy") as beside, beside.open("wb") as file:
            np.save(file, array)


def _load_all(place: Path) -> tuple[TrainingCorpus, TrainingCorpus, Accounts]:
    accounts = Accounts(**load_json(place / "about.json"))
    return _load(place, "train"), _load(place, "valid"), accounts


def _load(place: Path, split: str) -> TrainingCorpus:
    def read(name: str) -> NDArray[np.generic]:
        found: NDArray[np.generic] = np.load(place / f"{split}-{name}.npy", mmap_mode="r")
        return found

    return TrainingCorpus(ids=read("ids"), counts=read("counts"), starts=read("starts"))  # type: ignore[arg-type]
