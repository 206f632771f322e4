"""SmolLM2's own answers to the prompts of `prompts.py`, thousands at once on a GPU: millions of tokens in two minutes.

    python -m lab.smollm2.batch_answers MODEL prompts.jsonl.xz OUT --device cuda --dtype bfloat16 --seconds 140

`answers.py` writes the same through the engine, bound by the host; this samples in lock-step (`batch_sampler.py`). The
prompt's number decides the temperature (0, 0.7, 0.85 or 1); at most 256 tokens; prompts of more than 500 are left out.
For a prompt of the kind "own" the model writes the user's turn behind its own user mark first, at temperature 0.8, for
one of the kind "begun" behind its beginning; and so it does for a second turn of every fourth chat whose first answer
has ended.
Data out: OUT-0.npz.xz to OUT-3.npz.xz (`packed.py`), of all that has ended before the seconds are over.
"""

import argparse
import gzip
import json
import lzma
import sys
from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.smollm2.batch_sampler import Job, Slots
from lab.smollm2.packed import Answer, account, write
from outdraft.codecs.text import TextCodec
from outdraft.models.files.load import fill_decoder, open_weights
from outdraft.models.files.load_codec import load_codec
from outdraft.models.networks.device import choose_device

TEMPERATURES = (0.0, 0.7, 0.85, 1.0)
MAX_TOKENS, OWN_TOKENS, LONGEST = 256, 120, 500
OWN_TEMPERATURE = 0.8
BURST = 8  # steps between two looks at what has ended
MARK = "MARK"  # stands for words in a rendered chat


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """What a text of the sampler is."""

    number: int  # the prompt's
    kind: str
    second: bool = False  # of a second turn
    by_user: bool = False  # the model writes what a user says


class Chats:
    """Which text follows on which, and the answers that have ended."""

    def __init__(self, codec: TextCodec, length: int, most: int = MAX_TOKENS) -> None:
        assert codec.chat_template is not None, "the model is no chat model"
        said = [{"role": role, "content": MARK} for role in ("user", "assistant", "user")]
        shown = codec.chat_template.render(said, add_generation_prompt=True).text.split(MARK)
        self._before, _, self._to_user, self._to_answer = (codec.encode(text, add_special=False) for text in shown)
        self._codec, self._length, self._most = codec, length, most
        self._shares = self._to_user[0] in codec.eos_token_ids  # what the template writes behind an answer ends it
        self.answers: list[Answer] = []
        self.left_out = 0

    def first(self, records: Seq[tuple[int, dict[str, Any]]]) -> Iterator[Job]:
        """The texts that these prompts begin with."""
        asked = [(number, record) for number, record in records if record["messages"]]
        assert self._codec.chat_template is not None
        texts = [self._codec.chat_template.render(record["messages"]).text for _, record in asked]
        for (number, record), ids in zip(asked, self._codec.encode_batch(texts), strict=True):
            yield from self._answer(ids, Tag(number=number, kind=record["kind"]))
        for number, record in records:
            if not record["messages"]:
                begin = self._codec.encode(record.get("begin", ""), add_special=False)
                yield self._turn([*self._before, *begin], Tag(number=number, kind=record["kind"]))

    def after(self, job: Job, ids: NDArray[np.uint16]) -> Iterator[Job]:
        """Take what was written for a job, and say what follows on it."""
        tag = job.tag
        if tag.by_user:
            words = self._codec.decode(ids.tolist()).rstrip()
            words = words if tag.kind == "begun" and not tag.second else words.strip() or "Hello!"
            said = self._codec.encode(words, add_special=False)
            yield from self._answer([*job.ids, *said, *self._to_answer], replace(tag, by_user=False))
            return
        ended = int(ids[-1]) in self._codec.eos_token_ids
        answer = Answer(
            prompt=job.ids, ids=ids, kind=tag.kind, temperature=job.temperature, ended=ended, second=tag.second
        )
        self.answers.append(answer)
        before = [*job.ids, *ids[:-1].tolist(), *self._to_user]
        fits = len(before) + OWN_TOKENS + len(self._to_answer) <= min(LONGEST, self._length - self._most)
        if ended and not tag.second and tag.number % 4 == 0 and fits and self._shares:
            yield self._turn(before, replace(tag, second=True))

    def _turn(self, before: Seq[int], tag: Tag) -> Job:
        return Job(ids=before, temperature=OWN_TEMPERATURE, most=OWN_TOKENS, tag=replace(tag, by_user=True))

    def _answer(self, ids: Seq[int], tag: Tag) -> Iterator[Job]:
        if len(ids) > min(LONGEST, self._length - self._most):
            self.left_out += 1
            return
        temperature = Random(tag.number + 1_000_000 * tag.second).choice(TEMPERATURES)
        yield Job(ids=ids, temperature=temperature, most=self._most, tag=tag)


def main() -> int:
    """Sample until the prompts or the seconds are used up, then write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("out", type=Path, help="the beginning of the files' names")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--slots", type=int, default=2048)
    parser.add_argument("--length", type=int, default=768, help="tokens of a prompt and its answer")
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1e9, help="of the whole run")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    began = perf_counter()
    codec = load_codec(asked.model)
    assert codec is not None, "the model has no tokenizer"
    decoder = fill_decoder(open_weights(asked.model, asked.dtype), choose_device(asked.device))
    ends = sorted(codec.eos_token_ids | set(decoder.config.eos_ids))
    slots = Slots(decoder, size=asked.slots, length=asked.length, most=MAX_TOKENS, ends=ends, seed=asked.seed)
    say(f"model read after {perf_counter() - began:.1f} s")
    chats = Chats(codec, asked.length)
    records = list(enumerate(read_prompts(asked.prompts)))
    try:
        sample(slots, chats, records, began, asked.seconds)
    except RuntimeError as error:  # of the device: what has ended is written all the same
        say(f"the sampler stopped: {error}")
    say(f"sampled after {perf_counter() - began:.1f} s; {chats.left_out} prompts were too long")
    paths = write(chats.answers, asked.out, asked.files)
    for name, one in account(paths).items():
        say(f"{name}: {json.dumps(one)}")
    sizes = ", ".join(f"{path.name} {path.stat().st_size / 1e6:.1f} MB" for path in paths)
    say(f"written after {perf_counter() - began:.1f} s: {sizes}")
    return 0


def read_prompts(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file, which may be compressed."""
    kinds = {".xz": lzma.open, ".gz": gzip.open}
    with kinds.get(path.suffix, open)(path, "rt", encoding="utf-8") as file:  # type: ignore[operator]
        for line in file:
            yield json.loads(line)


def sample(slots: Slots, chats: Chats, records: Seq[tuple[int, dict[str, Any]]], began: float, seconds: float) -> None:
    """Prompts of a window are begun in the order of their lengths, so that slots are of about one length."""
    window, size = 8 * len(slots.jobs), len(slots.jobs)
    queue: deque[Job] = deque()
    at = tokens = steps = 0
    first = shown = perf_counter()
    while (now := perf_counter()) - began < seconds - 2 - tokens / 1e6:  # which writing takes
        ended = slots.harvest()
        tokens += sum(len(ids) for _, ids in ended)
        if len(queue) < size and at < len(records):
            queue.extend(sorted(chats.first(records[at : at + window]), key=lambda job: len(job.ids)))
            at += window
        free = slots.num_free
        if queue and free >= min(size, max(1, size // 32)):
            slots.fill([queue.popleft() for _ in range(min(free, len(queue)))])
        if slots.num_free == size and not ended and not queue:
            return
        slots.steps(BURST)
        steps += BURST
        for job, ids in ended:  # while the device computes
            queue.extendleft(chats.after(job, ids))
        if now - shown > 5:
            shown = now
            rate = tokens / (now - first)
            say(f"{now - began:.0f} s: {tokens} tokens, {rate:.0f}/s, {steps} steps, prompt {at} of {len(records)}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
