"""Texts that the target itself writes, for a draft to learn from: what it will be asked to continue.

    prompts of any file that training reads -> our own engine -> one JSON line an answer:
    {"prompt_token_ids": [...], "token_ids": [...], "finish_reason": "stop", "asked": [0.7, 256, 0],
     "target": "3f0c9a..."}

`asked`: temperature, most tokens, seed. `target`: the digest of the weights that wrote it. A prompt that the context
cannot hold has an answer without tokens, "error".

An answer is a function of its prompt, its number and the seed, so an interrupted run goes on behind its last whole line
and writes what it would have written. Accounts: done + failed + skipped = input.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from outdraft.codecs.text import TextCodec
from outdraft.engine.llm import LLM
from outdraft.options.errors import ConfigError
from outdraft.options.params import SamplingParams
from outdraft.options.ranges import check_range
from outdraft.training.alone import hold
from outdraft.training.examples import encode, pieces_of, read_records

_BEGINS = '{"prompt_token_ids"'
_BATCH = 64  # requests that are open at once, and lines that an interruption may cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """The settings with which the target writes its answers."""

    temperatures: tuple[float, ...] = (1.0,)  # one after the other, prompt by prompt
    max_tokens: int = 256
    prompt_tokens: int = 0  # of an example without a prompt of its own, its beginning is one; 0: such are skipped
    seed: int = 0

    def __post_init__(self) -> None:
        check_range(self, "temperatures", least=0.0, most=100.0)
        check_range(self, "max_tokens", least=1)
        check_range(self, "prompt_tokens", "seed", least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """How many prompts were read, answered, answered with an error, and left out."""

    read: int
    done: int
    failed: int
    skipped: int  # without a prompt
    tokens: int  # of the answers


def prompts_of(files: Iterable[Path], codec: TextCodec | None, length: int) -> Iterator[list[int] | None]:
    """Of each example what comes before its last answer, or its first `length` tokens; None where that is nothing."""
    template = codec.chat_template if codec is not None else None
    for path in files:
        for where, record in read_records(path):
            ids, counts = encode(pieces_of(record, template, where, asks=True), codec, where)
            last = len(counts) - 1
            while last >= 0 and counts[last]:
                last -= 1
            yield ids[: last + 1] or ids[: min(length, len(ids) - 1)] or None


def write_answers(
    llm: LLM,
    prompts: Iterable[list[int] | None],
    asking: Asking,
    path: Path,
    tell: Callable[[str], object],
    *,
    target: str = "",
) -> Answered:
    """Append to `path` what is missing there. `target`: the digest of the weights that write; "": not noted.

    Raises `ConfigError` where it holds other answers than these, where another process writes it, and where there is no
    prompt to answer.
    """
    done = failed = skipped = tokens = read = 0
    listed = enumerate(prompts)
    if (first := next(listed, None)) is None:
        raise ConfigError("there is no example to answer: name files with --data FILE that hold prompts, one a line")
    numbered = chain([first], listed)
    with path.open("a", encoding="utf-8") as out:
        hold(out, path)
        there = _whole_lines(path)
        while batch := list(islice(numbered, _BATCH)):
            asked = [(number, prompt) for number, prompt in batch if prompt is not None]
            known, there = there[: len(asked)], there[len(asked) :]
            for (number, prompt), one in zip(asked, known, strict=False):
                if one.get("target", target) != target:
                    raise ConfigError(
                        f"{path} holds answers of another target ({one['target']}, not {target}): name another file"
                    )
                if one["prompt_token_ids"] != prompt or one["asked"] != _settings(asking, number):
                    raise ConfigError(
                        f"{path} holds answers to other prompts, or with other settings (its answer to prompt "
                        f"{number} differs): name another file"
                    )
            made = _ask(llm, asked[len(known) :], asking)
            for line in made:
                out.write(json.dumps({**line, "target": target} if target else line) + "\n")
            out.flush()
            lines = [*known, *made]
            read, skipped = read + len(batch), skipped + len(batch) - len(asked)
            failed += sum(one["finish_reason"] == "error" for one in lines)
            tokens += sum(len(one["token_ids"]) for one in lines)
            done = read - skipped - failed
            tell(f"{done} answers, {tokens} tokens")
        if there:
            raise ConfigError(
                f"{path} holds {len(there)} answers more than there are prompts: give the prompts that it was begun "
                "with, or name another file"
            )
    return Answered(read=read, done=done, failed=failed, skipped=skipped, tokens=tokens)


def _settings(asking: Asking, number: int) -> list[float]:
    """Temperature, most tokens and seed of a prompt's answer."""
    return [asking.temperatures[number % len(asking.temperatures)], asking.max_tokens, asking.seed + number]


def _ask(llm: LLM, asked: Seq[tuple[int, list[int]]], asking: Asking) -> list[dict[str, Any]]:
    """A line for each; what the context cannot hold is not asked for."""
    most = llm.engine.parts.target.max_len
    settings = {number: _settings(asking, number) for number, _ in asked}
    fits = {number: prompt for number, prompt in asked if len(prompt) < most}
    params = [
        SamplingParams(max_tokens=asking.max_tokens, temperature=settings[number][0], seed=int(settings[number][2]))
        for number in fits
    ]
    results = llm.generate([{"prompt_token_ids": prompt} for prompt in fits.values()], params) if fits else []
    found = dict(zip(fits, results, strict=True))
    return [
        {
            "prompt_token_ids": prompt,
            "token_ids": list(found[number].token_ids) if number in found else [],
            "finish_reason": found[number].finish_reason if number in found else "error",
            "asked": settings[number],
        }
        for number, prompt in asked
    ]


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    """What was written before; half a line at the end is cut off. Raises `ConfigError` for a file of something else."""
    try:
        text = path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        lines = [json.loads(line) for line in whole.splitlines()]
    except ValueError as error:
        raise ConfigError(f"{path} is no file of answers ({error}): name another one") from error
    keys = {"prompt_token_ids", "token_ids", "finish_reason", "asked"}
    ours = all(isinstance(line, dict) and line.keys() - {"target"} == keys for line in lines)
    begun = text.startswith(_BEGINS) or _BEGINS.startswith(text)  # where not even the first line is whole
    if not ours or not (lines or begun):
        raise ConfigError(f"{path} holds lines that are no answers: name another file")
    if whole != text:
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)  # not written anew: a kill would cost all answers
    return lines
