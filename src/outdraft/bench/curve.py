"""What a target pass costs by the number of its rows: the one curve that decides whether drafting can pay.

Rows of one pass share the reading of the weights, so a pass costs nearly the same until arithmetic, not memory, is the
limit. Measured on the engine's own target, after a prompt; and beside it the roof: how fast this machine reads memory
and how fast it multiplies matrices of this number format.
"""

from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter
from typing import Any

import torch

from outdraft.bench.subject import decoder_of, runner_of
from outdraft.core.draft import chain
from outdraft.core.packing import pack
from outdraft.core.params import SamplingParams
from outdraft.core.request import Request
from outdraft.engine.llm import LLM

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
MIN_REPEATS, MAX_REPEATS = 5, 40
_ROOF_BYTES, _ROOF_SIDE = 1 << 28, 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Seconds of one pass of `rows[i]` rows over `past` cached ones, and what such a pass moves and multiplies."""

    past: int
    rows: list[int]
    seconds: list[float]  # median
    weight_bytes: int  # read once a pass
    kv_bytes: int  # of one cached token
    flops: int  # of one row, attention to the past included
    bandwidth: float  # bytes a second that this machine reads
    peak_flops: float  # operations a second in matrices of the model's number format


def measure_curve(llm: LLM, *, rows: Seq[int] = ROWS, past: int = 128, budget: float = 0.4) -> Curve:
    """About `budget` seconds for each point, at least five passes."""
    runner = runner_of(llm)
    config = decoder_of(llm).config
    past = max(1, min(past, runner.max_len - max(rows) - 2))
    rows = [count for count in rows if past + count < runner.max_len]
    width = decoder_of(llm).dtype.itemsize
    embedding = 0 if config.tie_embeddings else config.vocab_size * config.hidden_size
    multiplied = decoder_of(llm).num_parameters - embedding
    attention = 4 * config.num_layers * config.num_heads * config.head_dim * past
    return Curve(
        past=past,
        rows=list(rows),
        seconds=_time_passes(llm, rows, past, budget),
        weight_bytes=decoder_of(llm).pass_bytes,
        kv_bytes=2 * config.num_layers * config.num_kv_heads * config.head_dim * width,
        flops=2 * multiplied + attention,
        bandwidth=_bandwidth(runner.device),
        peak_flops=_peak_flops(runner.device, runner.dtype),
    )


def as_record(curve: Curve) -> dict[str, Any]:
    """Plain data."""
    return asdict(curve)


@torch.inference_mode()
def _time_passes(llm: LLM, rows: Seq[int], past: int, budget: float) -> list[float]:
    """A real request reads a prompt; then drafts of every length are scored over it, and none is committed."""
    engine, runner = llm.engine, runner_of(llm)
    ids = tuple(1 + i * 7 % (runner.vocab_size - 1) for i in range(past))
    seq = engine.add(Request(prompt_token_ids=ids, params=SamplingParams(max_tokens=2, ignore_eos=True)))
    try:
        while not seq.num_output:
            engine.step()
        found = []
        for count in rows:
            tokens = [seq.pending, *(1 + i * 5 % (runner.vocab_size - 1) for i in range(1, count))]
            packed = pack([seq], [chain(tokens)])

            def score(packed: Any = packed) -> None:
                runner.forward(packed)

            found.append(_median_seconds(score, runner.device, budget))
        return found
    finally:
        engine.cancel(seq)


def _median_seconds(work: Any, device: torch.device, budget: float) -> float:
    for _ in range(2):
        work()
    taken: list[float] = []
    while len(taken) < MAX_REPEATS and (len(taken) < MIN_REPEATS or sum(taken) < budget):
        _wait(device)
        began = perf_counter()
        work()
        _wait(device)
        taken.append(perf_counter() - began)
    return median(taken)


def _bandwidth(device: torch.device) -> float:
    """Bytes a second of reading a long vector, as a pass of one row reads the weights."""
    matrix = torch.ones(_ROOF_BYTES // 4 // 4096, 4096, device=device)
    vector = torch.ones(4096, device=device)
    return _ROOF_BYTES / _median_seconds(lambda: torch.mv(matrix, vector), device, 0.2)


def _peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    side = _ROOF_SIDE * (8 if device.type == "cuda" else 1)
    one = torch.ones(side, side, device=device, dtype=dtype)
    return 2 * side**3 / _median_seconds(lambda: one @ one, device, 0.2)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
