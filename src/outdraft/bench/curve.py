"""What a target pass costs by the number of its rows: the one curve that decides whether drafting can pay.

Rows of one pass share the reading of the weights, so a pass costs nearly the same until arithmetic, not memory, is the
limit. Measured on the engine's own target, after a prompt; and beside it the roof: how fast this machine reads memory
and how fast it multiplies numbers of this format.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from functools import partial
from statistics import median
from time import perf_counter

import torch

from outdraft.analysis.records import PassCurve
from outdraft.bench.subject import decoder_of, runner_of
from outdraft.cache.slots import RowFormat
from outdraft.core.draft import chain
from outdraft.core.packing import pack
from outdraft.core.request import Request
from outdraft.engine.llm import LLM
from outdraft.engine.loop import Engine
from outdraft.kernels.decoder.peak import dot_peak
from outdraft.kernels.threads import torch_threads
from outdraft.models.networks.native import NativeDecoder
from outdraft.options.params import SamplingParams

ROWS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 32, 48, 64, 128, 256)
_FITTING = 64  # rows that always have room behind the cached tokens; more are timed where the context allows
PAST = 128
MIN_REPEATS, MAX_REPEATS = 7, 40
_ROOF_BYTES, _ROOF_SIDE = 1 << 28, 1024


def measure_curve(llm: LLM, *, rows: Seq[int] = ROWS, past: int = PAST, budget: float = 6.0) -> PassCurve:
    """About `budget` seconds, at least seven passes of each number of rows."""
    runner, network = runner_of(llm), decoder_of(llm)
    config = network.config
    past = max(1, min(past, runner.max_len - min(max(rows), _FITTING) - 2))
    rows = [count for count in rows if past + count < runner.max_len]
    embedding = 0 if config.tie_embeddings else config.vocab_size * config.hidden_size
    multiplied = network.num_parameters - embedding
    attention = 4 * config.num_layers * config.num_heads * config.head_dim * past
    row = RowFormat(dtype=network.dtype, device=runner.device, int8=runner.cache_config.dtype == "int8")
    threads = 1 if isinstance(network, NativeDecoder) else torch.get_num_threads()
    # On the engine's own thread, which would else take the request for one of its own
    seconds, bandwidth = llm._thread.ask(lambda engine: _time_passes(engine, llm, rows, past, budget, threads))
    return PassCurve(
        past=past,
        rows=list(rows),
        seconds=seconds,
        weight_bytes=network.pass_bytes,
        kv_bytes=2 * config.num_layers * config.num_kv_heads * row.num_bytes(config.head_dim),
        flops=2 * multiplied + attention,
        bandwidth=bandwidth,
        peak_flops=_peak_flops(llm),
    )


@torch.inference_mode()
def _time_passes(
    engine: Engine, llm: LLM, rows: Seq[int], past: int, budget: float, threads: int
) -> tuple[list[float], float]:
    """A real request reads a prompt; then drafts of every length are scored over it, and none is committed.

    Every round reads memory once and runs one pass of each number of rows, so that a busy moment falls on all of them.
    """
    runner = runner_of(llm)
    ids = tuple(1 + i * 7 % (runner.vocab_size - 1) for i in range(past))
    seq = engine.add(Request(prompt_token_ids=ids, params=SamplingParams(max_tokens=2, ignore_eos=True)))
    try:
        while not seq.num_output:
            engine.step()
        read, num_bytes = _reader(llm)
        works = [read]
        for count in rows:
            tokens = [seq.pending, *(1 + i * 5 % (runner.vocab_size - 1) for i in range(1, count))]
            works.append(partial(runner.forward, pack([seq], [chain(tokens)])))
        with torch_threads(threads):
            taken = _interleaved(works, runner.device, budget)
        return taken[1:], num_bytes / taken[0]
    finally:
        engine.cancel(seq)


def _reader(llm: LLM) -> tuple[Callable[[], object], int]:
    """What reads memory as a pass of one row does, and how many bytes: the packed weights themselves, or a matrix."""
    network = decoder_of(llm)
    if isinstance(network, NativeDecoder):
        return network.stack.read, network.pass_bytes
    matrix = torch.ones(_ROOF_BYTES // 4 // 4096, 4096, device=network.device)
    return partial(torch.mv, matrix, torch.ones(4096, device=network.device)), _ROOF_BYTES


def _interleaved(works: Seq[Callable[[], object]], device: torch.device, budget: float) -> list[float]:
    """Median seconds of each, in rounds; the first round is not counted."""
    taken: list[list[float]] = [[] for _ in works]
    for count in range(MAX_REPEATS + 1):
        if count > MIN_REPEATS and sum(map(sum, taken)) > budget:
            break
        for work, times in zip(works, taken, strict=True):
            _wait(device)
            began = perf_counter()
            work()
            _wait(device)
            times.append(perf_counter() - began)
    return [median(times[1:]) for times in taken]


def _peak_flops(llm: LLM) -> float:
    """Of the kernels' dot products in the weights' number format; through PyTorch, of a large product of matrices."""
    network, runner = decoder_of(llm), runner_of(llm)
    if isinstance(network, NativeDecoder):
        bits = 16 if network.config.quant is None else 8
        return dot_peak(bits, threads=network.stack.threads, kind=network.stack.kind)
    side = _ROOF_SIDE * (8 if runner.device.type == "cuda" else 1)
    one = torch.ones(side, side, device=runner.device, dtype=runner.dtype)
    return 2 * side**3 / _interleaved([lambda: one @ one], runner.device, 0.2)[0]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
