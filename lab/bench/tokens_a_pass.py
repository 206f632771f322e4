"""`python -m lab.bench.tokens_a_pass --method NAME[:KEY=VALUE,...]`: how many tokens a pass brings, by method.

Counts alone, no clock, so the machine need not be quiet. Each method writes after all of the zoo's held-out texts, at
each temperature, with seeds (of their own, the same for every method) and without. `--vary sample=greedy,match` writes
once with each value and compares the others with the first. An interval is a bootstrap over texts: they are drawn anew,
with replacement, 2000 times, and the middle 95 % are shown; for a ratio the same texts are drawn on both sides.
"""

import argparse
import sys
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from outdraft import zoo
from outdraft.bench.drafts import join_made
from outdraft.bench.lineup import Rival, parse_rival
from outdraft.bench.shelf import Shelf
from outdraft.bench.subject import load_subject
from outdraft.engine.llm import LLM
from outdraft.options.errors import ConfigError, OutdraftError
from outdraft.options.params import SamplingParams

_DRAWS, _MIDDLE = 2000, (0.025, 0.975)
_SEEDS = {"no": (False,), "yes": (True,), "both": (False, True)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """By text [P]: tokens written, and passes of the target that brought them."""

    tokens: NDArray[np.float64]
    passes: NDArray[np.float64]

    @property
    def tau(self) -> float:
        """Tokens a pass, all texts together."""
        return float(self.tokens.sum() / self.passes.sum())

    def drawn(self) -> NDArray[np.float64]:
        """Tokens a pass of texts drawn anew [2000], the same ones for all counts of as many texts."""
        texts = np.random.default_rng(0).integers(len(self.tokens), size=(_DRAWS, len(self.tokens)))
        found: NDArray[np.float64] = self.tokens[texts].sum(1) / self.passes[texts].sum(1)
        return found


def count(engine: LLM, prompts: Seq[str], params: SamplingParams, *, seeded: bool, copies: int) -> Counts:
    """Write `copies` texts after each prompt, all prompts in one batch."""
    made = np.zeros((2, len(prompts)))
    for copy in range(copies):
        engine.forget()
        asked = [replace(params, seed=copy * len(prompts) + i if seeded else None) for i in range(len(prompts))]
        results = engine.generate(list(prompts), asked)
        made += [[one.stats.num_tokens for one in results], [one.stats.num_steps for one in results]]
    return Counts(tokens=made[0], passes=made[1])


def with_interval(value: float, drawn: NDArray[np.float64], digits: int = 2) -> str:
    """`2.14 [2.02, 2.30]`."""
    low, high = np.quantile(drawn, _MIDDLE)
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def row(found: Seq[Counts]) -> list[str]:
    """Each with its interval, and behind it, but for the first, its ratio to the first."""
    first, cells = found[0], []
    for one in found:
        cells.append(with_interval(one.tau, one.drawn()))
        if one is not first:
            cells.append(with_interval(one.tau / first.tau, one.drawn() / first.drawn()))
    return cells


def variants(rival: Rival, vary: str | None) -> dict[str, Rival]:
    """The rival with each value of the option, by value. Raises `ConfigError` for what is no KEY=VALUE,VALUE."""
    if vary is None:
        return {"tokens a pass": rival}
    key, _, values = vary.partition("=")
    if not key or not all(values.split(",")):
        raise ConfigError(f"--vary {vary!r}: write KEY=VALUE,VALUE, for example sample=greedy,match")
    read = {value: parse_rival(f"{rival.drafter}:{key}={value}").options for value in values.split(",")}
    return {value: replace(rival, options={**rival.options, **option}) for value, option in read.items()}


def main(words: Seq[str] | None = None) -> int:
    """Count and show, a line of Markdown for each method, temperature and kind of seed; 2 for what cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.tokens_a_pass", description=__doc__)
    parser.add_argument("model", nargs="?", default="zoo:target")
    parser.add_argument(
        "--method", action="append", required=True, help="as `outdraft bench` takes it; may be repeated"
    )
    parser.add_argument("--vary", help="an option and its values: KEY=VALUE,VALUE")
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.7, 1.0], metavar="T")
    parser.add_argument("--seeded", choices=_SEEDS, default="both", help="requests with a seed (default: both)")
    parser.add_argument("--prompts", type=int, default=0, help="only so many of the held-out texts; 0 is all")
    parser.add_argument("--copies", type=int, default=1, help="texts after each prompt (default: 1)")
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens of a text (default: 64)")
    given = parser.parse_args(words)
    prompts = list(zoo.heldout_prompts().values())[: given.prompts or None]
    try:
        shelf = Shelf()
        subject = load_subject(given.model, shelf)
        asked = [variants(parse_rival(one), given.vary) for one in given.method]
        heads = [name for i, name in enumerate(asked[0]) for name in ([name] if not i else [name, "ratio"])]
        sys.stdout.write(f"| method | T | seed | {' | '.join(heads)} |\n|{' --- |' * (3 + len(heads))}\n")
        for method, named in zip(given.method, asked, strict=True):
            engines = [join_made(subject.plain, one, shelf, subject.name) for one in named.values()]
            for temperature, seeded in product(given.temperature, _SEEDS[given.seeded]):
                params = SamplingParams(max_tokens=given.max_tokens, temperature=temperature, ignore_eos=True)
                found = [count(one, prompts, params, seeded=seeded, copies=given.copies) for one in engines]
                told = [method, f"{temperature:g}", "yes" if seeded else "no", *row(found)]
                sys.stdout.write(f"| {' | '.join(told)} |\n")
                sys.stdout.flush()
    except OutdraftError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
