"""`python -m lab.bench.streaming`: a model larger than its memory, plain and drafted; and the same held whole.

    plain      one reading of what does not fit for each token
    drafted    one reading for each pass; a drafter that runs ahead is also measured without the overlap
    whole      all weights in memory: the text that the others owe

Each line: tokens a pass, tokens a second over the plain one's, bytes read for a token, the most memory that the process
held. The model with all its weights is loaded last, so that no peak is its. `--read-gbps` slows the disk down to a
given one. Greedy, one prompt after the other, rounds interleaved in a changing order after a few tokens that warm up;
the median counts. No text profits from having been written before.
"""

import argparse
import sys
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Seq
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

from outdraft.bench.drafts import make_draft
from outdraft.bench.lineup import Rival, parse_rival
from outdraft.bench.made import make_model
from outdraft.bench.memory import forget_peak, read_peak
from outdraft.bench.shelf import Shelf
from outdraft.bench.suites import load_suites
from outdraft.bench.suites.prompt import Prompt
from outdraft.bench.threads import fixed_threads
from outdraft.bench.trial import join, order
from outdraft.decode.executor import Serial
from outdraft.engine.assembly.variant import network_of
from outdraft.engine.llm import LLM
from outdraft.models.files.load import open_weights
from outdraft.models.remake.packed_cache import packed_file
from outdraft.models.remake.pieces import Pieces
from outdraft.models.remake.streamed import StreamedDecoder
from outdraft.options.errors import ConfigError, OutdraftError
from outdraft.options.params import SamplingParams
from outdraft.options.sizes import read_bytes

_WARM_UP = 4  # tokens


@dataclass(slots=True)
class Measured:
    """One way to decode: what its rounds over all prompts came to."""

    label: str
    texts: list[tuple[int, ...]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # of each round
    num_tokens: int = 0  # of one round
    num_passes: int = 0  # that emitted any, of one round
    num_read: int = 0  # bytes, of one round
    peak: int = 0  # bytes of memory

    @property
    def rate(self) -> float:
        """Tokens a second, the median round's."""
        return self.num_tokens / median(self.seconds)


def measure(llm: LLM, label: str, prompts: Seq[Prompt], params: SamplingParams, threads: int | None = None) -> Measured:
    """Write every prompt once with one method, and time it. `threads`: always so many."""
    found = Measured(label)
    network = network_of(llm.engine.parts)
    file = network.units.file if isinstance(network, StreamedDecoder) else None
    before = file.num_read if file else 0
    forget_peak("cpu")
    seconds = 0.0
    for prompt in prompts:
        llm.forget()
        began = perf_counter()
        with nullcontext() if threads is None else fixed_threads(threads):
            result = llm.generate(prompt.turns[0], params)
        seconds += perf_counter() - began
        found.texts.append(result.token_ids)
        found.num_tokens += len(result.token_ids)
        found.num_passes += result.stats.num_steps
    found.seconds.append(seconds)
    found.peak = read_peak("cpu").get("host", 0)
    found.num_read = file.num_read - before if file else 0
    return found


def rounds(ways: Seq[Callable[[], Measured]], count: int) -> list[Measured]:
    """`count` interleaved rounds; texts must not change between them."""
    held: dict[int, Measured] = {}
    for number in range(count):
        for at in order(list(range(len(ways))), number):
            one = ways[at]()
            first = held.setdefault(at, one)
            if first is one:
                continue
            first.seconds += one.seconds
            first.peak = max(first.peak, one.peak)
            if first.texts != one.texts:
                raise ConfigError(
                    f"{one.label} wrote different texts in different rounds: its times cannot be compared"
                )
    return [held[at] for at in sorted(held)]


def engines(
    path: Path, memory: int, rivals: Seq[tuple[str, Rival]], gbps: float | None
) -> list[tuple[str, LLM, int | None]]:
    """The plain one, and one for each rival (two for one that runs ahead) over the same weights, with its threads."""
    plain = LLM(path, drafter="none", weights_memory=memory)
    network = network_of(plain.engine.parts)
    assert isinstance(network, StreamedDecoder)
    network.units.file.gbps = gbps
    made: list[tuple[str, LLM, int | None]] = [("plain", plain, None)]
    for label, rival in rivals:
        llm = join(plain, rival)
        made.append((label, llm, rival.threads))
        if not isinstance(llm.engine.parts.executor, Serial):
            serial = join(plain, rival)
            serial.engine.parts = replace(serial.engine.parts, executor=Serial())
            made.append((f"not overlapped: {label}", serial, rival.threads))
    return made


def main(words: list[str] | None = None) -> int:
    """Measure and show; 0 when every text is the whole model's."""
    asked = _parser().parse_args(words)
    try:
        return _run(asked)
    except OutdraftError as error:
        sys.stderr.write(f"outdraft: {error}\n")
        return 2


def _run(asked: argparse.Namespace) -> int:
    shelf = Shelf(asked.cache)
    path = make_model(asked.model, shelf).path
    size = sum(unit.size for unit in packed_file(Pieces(stored=open_weights(path))).units)
    memory = read_bytes(asked.weights_memory) if asked.weights_memory else size // 4
    prompts = load_suites(asked.suite or ["prose"], count=asked.prompts)
    params = SamplingParams(max_tokens=asked.max_tokens, ignore_eos=True)
    rivals = [parse_rival(text) for text in asked.method or ["draft_model:k=8"]]
    drafts = [(rival.label, make_draft(rival, shelf, asked.model)) for rival in rivals]

    forget_peak("cpu")
    before = read_peak("cpu").get("host", 0)
    made = engines(path, memory, drafts, asked.read_gbps)
    network = network_of(made[0][1].engine.parts)
    assert isinstance(network, StreamedDecoder)
    _warm_up((llm for _, llm, _ in made), prompts)
    ways = [partial(measure, llm, label, prompts, params, threads) for label, llm, threads in made]
    found = rounds(ways, asked.rounds)
    disk = network.units.file
    sys.stdout.write(
        f"{asked.model}: {_mib(size)} of weights, {_mib(memory)} allowed, {_mib(network.units.held_bytes)} held; "
        f"{_mib(network.units.round_bytes)} read a pass ({'direct' if disk.is_direct else 'buffered'} reads, "
        f"{disk.num_read / max(disk.seconds, 1e-9) / 1e9:.2f} GB/s{' modelled' if asked.read_gbps else ''}); "
        f"the process held {_mib(before)} before\n"
    )
    del made, ways, network
    _warm_up([in_memory := LLM(path, drafter="none")], prompts)
    whole = measure(in_memory, "whole model in memory", prompts, params)
    sys.stdout.write(f"{'':38} tokens/pass  tokens/s   over plain  read a token  peak     text\n")
    for one in [*found, whole]:
        same = "the same" if one.texts == whole.texts else "ANOTHER"
        sys.stdout.write(
            f"{one.label[:38]:38} {one.num_tokens / one.num_passes:11.2f}  {one.rate:8.2f}  "
            f"{one.rate / found[0].rate:9.2f}x  {_mib(one.num_read // one.num_tokens):>12}  "
            f"{_mib(one.peak):>8}  {same}\n"
        )
    return int(any(one.texts != whole.texts for one in found))


def _warm_up(engines: Iterable[LLM], prompts: Seq[Prompt]) -> None:
    """The first passes of an engine pay for things that are done once."""
    for llm in engines:
        llm.generate(prompts[0].turns[0], SamplingParams(max_tokens=_WARM_UP, ignore_eos=True))


def _mib(count: int) -> str:
    return f"{count / (1 << 20):.0f} MiB"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.bench.streaming", description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--model", default="zoo:draft@8x20", help="as for `outdraft bench`")
    parser.add_argument("--weights-memory", metavar="SIZE", help="default: a quarter of the weights")
    parser.add_argument("--method", action="append", help="a drafter, as for `outdraft bench`; may be repeated")
    parser.add_argument("--suite", action="append", help="default: prose")
    parser.add_argument("--prompts", type=int, default=2, help="of each suite")
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--read-gbps", type=float, help="a disk of so many gigabytes a second")
    parser.add_argument("--cache", help="where made models are kept")
    return parser


if __name__ == "__main__":
    sys.exit(main())
