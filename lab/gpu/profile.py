"""The time of a round on the device: kernels, gaps between them, launches, and how often the host waited.

PyTorch's profiler watches some rounds; its own cost stretches the host's part, so gaps are an upper bound. Waits are
counted apart, by CUDA's synchronisation warnings.
"""

import warnings
from dataclasses import dataclass

import torch
from torch.autograd.profiler_util import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile

from lab.gpu.pair import Pair
from lab.gpu.rounds import Way, make_engine, started, wait

_ROUNDS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundProfile:
    """Mean times and counts of one round on the device."""

    way: Way
    kernel_us: float  # kernels and copies, summed
    span_us: float  # from the first kernel of the watched rounds to the end of the last, a round
    busy: float  # kernel_us / span_us
    kernels: float
    launches: float  # calls of the host that start device work: kernels, graphs, copies
    waits: float  # synchronisations that PyTorch warned of


def profile_rounds(pair: Pair, way: Way) -> RoundProfile:
    """Watch some rounds in the middle of a text. CUDA only."""
    engine = make_engine(pair, way)
    room = (_ROUNDS * 3 + 4) * (way.depth + 1)
    with started(engine, way, room):
        for _ in range(_ROUNDS):
            engine.step()
        waits = _count_waits(engine.step)
        wait(pair.target.device)
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
            for _ in range(_ROUNDS):
                engine.step()
            wait(pair.target.device)
    device = [event for event in seen.events() if event.device_type == DeviceType.CUDA]
    starts = [event.time_range.start for event in device]
    stops = [event.time_range.end for event in device]
    busy = sum(stop - start for start, stop in zip(starts, stops, strict=True))
    span = max(stops) - min(starts)
    launches = sum(event.name.startswith(("cudaLaunch", "cudaGraphLaunch", "cudaMemcpy")) for event in seen.events())
    return RoundProfile(
        way=way,
        kernel_us=busy / _ROUNDS,
        span_us=span / _ROUNDS,
        busy=busy / span,
        kernels=len(device) / _ROUNDS,
        launches=launches / _ROUNDS,
        waits=waits,
    )


def _count_waits(step: object) -> float:
    assert callable(step)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            for _ in range(_ROUNDS):
                step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(one.message) for one in told) / _ROUNDS
