"""`python -m lab.gpu.packed`: weights of 4 and 8 bits that stay packed on a GPU (`nn/quant/four_bits.py`).

    products   one map on each grid: bytes, its largest errors, whether rows have the bits that they have alone, whether
               CUDA's layout is read back, and microseconds for 1, 9, 32 and 512 rows beside bfloat16
    texts      the zoo's target on 4 and 8 bits: plain decoding, chains and the default
    elastic    down a level and up again, beside the texts of `mixed` and `full`, and memory of the device
Data out: one JSON line for each; a section that fails leaves its reason.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lab.gpu.rounds import wait
from lab.gpu.texts import PROMPTS
from outdraft import LLM, SamplingParams, zoo
from outdraft.engine.assembly.memory import Memory
from outdraft.kernels.decoder import grid
from outdraft.models.files.load import load_model, save_model
from outdraft.models.remake.quantize import quantize_decoder
from outdraft.nn.capture import record_cuda
from outdraft.nn.quant import QuantConfig
from outdraft.nn.quant.four_bits import FourBits

GRIDS = ((4, 32), (4, 128), (4, 0), (8, 32), (8, 128), (8, 0))
SHAPES = {"tiny": ((128, 256),), "1b": ((2048, 2048), (4096, 14336), (14336, 4096))}  # inputs, outputs
ROWS = (1, 9, 16, 32, 512)
COUNTS = (2, 9, 16, 17, 32, 33, 64, 128)  # of rows that must have the bits that they have alone
_CACHED = 1 << 28  # bytes: products go through copies of a weight until so many were read, which no cache holds
SETTINGS: dict[str, dict[str, Any]] = {"greedy": {"temperature": 0.0}, "seeded": {"temperature": 0.8, "seed": 5}}


def main(words: list[str] | None = None) -> int:
    """Measure and write; 0 when every section has figures."""
    parser = argparse.ArgumentParser(prog="python -m lab.gpu.packed", description="Packed weights on a GPU.")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", default="1b", choices=sorted(SHAPES))
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--out", default="gpu-packed.jsonl")
    asked = parser.parse_args(words)
    failed = 0
    with Path(asked.out).open("w", encoding="utf-8") as out, TemporaryDirectory() as place:
        for name, work in _sections(asked, Path(place)):
            try:
                told = {"section": name, "result": work()}
            except Exception as error:  # one section must not cost the others
                told = {"section": name, "failed": f"{type(error).__name__}: {error}"}
            failed += "failed" in told
            for file in (out, sys.stdout):
                file.write(json.dumps(told) + "\n")
                file.flush()
    return 1 if failed else 0


def _sections(asked: argparse.Namespace, place: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    device = torch.device(asked.device)
    for num_in, num_out in SHAPES[asked.size]:
        for bits, group in GRIDS:
            yield (
                f"products, {num_in} x {num_out}, {bits} bits, groups of {group or num_in}",
                partial(time_products, num_in, num_out, bits, group, device),
            )
    for bits in (4, 8):
        yield f"texts, {bits} bits", partial(compare_texts, bits, asked.device, asked.tokens, place)
    yield "elastic", partial(compare_levels, asked.device, asked.tokens)


@torch.inference_mode()
def time_products(num_in: int, num_out: int, bits: int, group: int, device: torch.device) -> dict[str, Any]:
    """One random map, packed and as floats."""
    torch.manual_seed(0)
    weight = torch.randn(num_out, num_in, device=device) / num_in**0.5
    scales = grid.find_scales(weight, bits, group)
    integers = grid.round_to_grid(weight, scales, bits, group)
    whole = grid.times_scales(integers, scales)
    small, floats = FourBits.of(bits, grid.pack(integers, bits), scales, device), whole.bfloat16()
    x = torch.randn(max(ROWS), num_in, device=device).bfloat16()
    want = x.double() @ whole.double().T
    alone = torch.cat([small.product(row[None]) for row in x[: COUNTS[-1]]])
    ways: dict[str, tuple[int, Callable[[Tensor, int], Tensor]]] = {}
    _add(ways, "packed", small.num_bytes, small, lambda one, rows: one.product(rows))
    _add(ways, "bfloat16", 2 * floats.numel(), floats, lambda one, rows: F.linear(rows, one))
    if bits == 8 and not group:
        pair = (integers, scales.flatten().bfloat16())
        _add(ways, "int8pack", integers.numel(), pair, lambda one, rows: torch._weight_int8pack_mm(rows, *one))
    return {
        "bytes": {name: num_bytes for name, (num_bytes, _) in ways.items()},
        "off": {n: _off(small.product(x[:n]), want[:n]) for n in ROWS},  # of a row's standard deviation
        "off_bfloat16": {n: _off(F.linear(x[:n], floats), want[:n]) for n in ROWS},
        "rows_with_other_bits": {n: int((small.product(x[:n]) != alone[:n]).any(1).sum()) for n in COUNTS},
        "layout": _off(torch.cat(list(small._floats())), whole),
        "us": {name: {n: _microseconds(way, x[:n], size) for n in ROWS} for name, (size, way) in ways.items()},
    }


def _add(ways: dict[str, Any], name: str, num_bytes: int, one: Any, multiply: Callable[[Any, Tensor], Tensor]) -> None:
    """`multiply` by copy number i of `one`; the first is itself."""
    copies = [one, *(_copied(one) for _ in range(_copies(num_bytes) - 1))]
    ways[name] = (num_bytes, lambda rows, i: multiply(copies[i % len(copies)], rows))


def _copies(num_bytes: int) -> int:
    return min(128, max(4, _CACHED // num_bytes))


def _copied(one: Any) -> Any:
    if isinstance(one, FourBits):
        return FourBits(weight=one.weight.clone(), pairs=one.pairs.clone(), is_split=one.is_split)
    return one.clone() if isinstance(one, Tensor) else tuple(map(torch.clone, one))


def _microseconds(way: Callable[[Tensor, int], Tensor], x: Tensor, num_bytes: int) -> float:
    """Of one product, in a graph of as many as go once through all copies, the best of five."""
    count = _copies(num_bytes) if x.device.type == "cuda" else 1

    def all_of_them() -> None:
        for i in range(count):
            way(x, i)

    run = record_cuda(all_of_them) if x.device.type == "cuda" else all_of_them
    best = float("inf")
    for _ in range(6 if x.device.type == "cuda" else 1):
        wait(x.device)
        began = perf_counter()
        run()
        wait(x.device)
        best = min(best, perf_counter() - began)
    return round(1e6 * best / count, 2)


def _off(got: Tensor, want: Tensor) -> float:
    return float(((got.double() - want).abs() / want.std(-1, keepdim=True)).max())


def compare_texts(bits: int, device: str, tokens: int, place: Path) -> dict[str, Any]:
    """Whole texts of the zoo's target on so many bits in groups of 32."""
    path = place / f"int{bits}"
    save_model(quantize_decoder(load_model(zoo.path("target")), QuantConfig(bits=bits)), path)
    copy(zoo.path("target") / "tokenizer.json", path)
    found: dict[str, Any] = {}
    texts: dict[str, Any] = {}
    drafters: dict[str, dict[str, Any]] = {
        "none": {},
        "ngram": {"num_speculative_tokens": 4},
        "draft_model": {"num_speculative_tokens": 4},
    }
    for name, given in {**drafters, "default": {}}.items():
        named = given if name == "default" else {"drafter": name, **given}
        with LLM(str(path), device=device, **named) as llm:
            found[name] = {"variant": llm.config["variant"], "graphs": llm.config["graphs"]}
            for key, setting in SETTINGS.items():
                params = SamplingParams(max_tokens=tokens, ignore_eos=True, **setting)
                llm.generate(PROMPTS, params)
                began = perf_counter()
                made = [list(one.token_ids) for one in llm.generate(PROMPTS, params)]
                seconds = perf_counter() - began
                same = sum(one == other for one, other in zip(made, texts.setdefault(key, made), strict=True))
                found[name][key] = {"same": same, "tokens_per_second": round(sum(map(len, made)) / seconds, 1)}
    return found


def compare_levels(device: str, tokens: int) -> dict[str, Any]:
    """An elastic engine that has too little memory once, and the texts of its levels named outright."""
    params = SamplingParams(max_tokens=tokens, ignore_eos=True)
    wanted = {}
    for name in ("full", "mixed"):
        with LLM("zoo:target", device=device, precision=name, drafter="none") as llm:
            wanted[name] = llm.generate(PROMPTS[0], params).token_ids
    found = []
    with LLM("zoo:target", device=device, precision="elastic", drafter="ngram") as llm:
        real = llm.engine.ladder.read()  # type: ignore[attr-defined]
        for free in (90, 1, 90):
            llm.engine.ladder.read = lambda free=free: Memory(free=free * 10**9, total=100 * 10**9)  # type: ignore[attr-defined]
            ids, level = llm.generate(PROMPTS[0], params).token_ids, llm.config["precision"]["level"]
            held = torch.cuda.memory_allocated() if device.startswith("cuda") else 0
            found.append({"level": level, "same": ids == wanted.get(level), "held": held})
    return {"free": real.free, "total": real.total, "levels": found}


if __name__ == "__main__":
    sys.exit(main())
