"""One model's weights at one level of precision, loaded and built into parts.

Data in: what the user asked for, and a level of `engine/precision.py`; data out: parts, and the configuration that says
what they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outdraft.cache.config import CacheConfig
from outdraft.codecs.text import TextCodec
from outdraft.core.errors import CapabilityError, ConfigError
from outdraft.core.registry import find, near_miss, option_defaults
from outdraft.decode.step import Parts
from outdraft.engine.build import build_parts, make_runner
from outdraft.engine.graphed import GraphedRunner
from outdraft.engine.plain_rows import find_bound
from outdraft.engine.precision import DRAFT_INT4, ELASTIC, FULL, MIXED, PRECISIONS
from outdraft.engine.runner import Runner
from outdraft.engine.speculative_config import Speculation
from outdraft.models.load import load_network
from outdraft.models.network import Network
from outdraft.models.quantize import mixed_precision
from outdraft.models.streamed import load_streamed


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What the user asked for."""

    directory: Path
    codec: TextCodec | None  # the target's tokenizer
    dtype: str
    device: str
    exact: bool
    guard: float | None
    enforce_eager: bool
    max_len: int | None
    max_num_seqs: int
    weights_memory: int | None = None  # bytes; None: all weights are held
    cache: CacheConfig
    speculation: Speculation

    def __post_init__(self) -> None:
        for name, value in (("max_model_len", self.max_len), ("max_num_seqs", self.max_num_seqs)):
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value} is out of range: it must be at least 1")

    @property
    def draft_rounding(self) -> str | None:
        """What the drafter's options say of its weights; None: it is no model that could be rounded."""
        if "quantization" not in option_defaults(find("drafter", self.speculation.drafter)):
            return None
        return str(self.speculation.drafter_options.get("quantization", "auto"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One level, ready to run."""

    parts: Parts
    name: str  # of the target's rounding, weights and cache
    config: dict[str, Any]  # plain data
    num_bytes: int  # of the weights that a level may change


def check_precision(setup: Setup, precision: str) -> None:
    """Raise `ConfigError` if it is none that we know, or none that these options can have."""
    if precision not in PRECISIONS:
        known = ", ".join(PRECISIONS)
        raise ConfigError(
            f"precision={precision!r} is not known{near_miss(precision, list(PRECISIONS))}; known: {known}"
        )
    if setup.weights_memory is not None and precision in (MIXED, ELASTIC):
        raise ConfigError(
            f"precision={precision!r} rounds weights that are in memory, and weights_memory leaves most on disk: leave "
            "one out, or round the model first (`outdraft quantize`)"
        )
    if precision == DRAFT_INT4 and setup.draft_rounding not in ("auto", "int4"):
        drafter = setup.speculation.drafter
        cure = f"quantization={setup.draft_rounding!r} is given: leave one out" if setup.draft_rounding else (
            f"drafter {drafter!r} has none: take a drafter with the option 'quantization', or another precision"
        )  # fmt: skip
        raise ConfigError(f"precision='draft-int4' rounds the draft model, and {cure}")


def load_variant(setup: Setup, level: str, *, small_draft: bool) -> Variant:
    """The weights of a level; `small_draft`: the draft model on 4 bits."""
    network = _load(setup, level)
    if small_draft:
        options = {**setup.speculation.drafter_options, "quantization": "int4"}
        setup = replace(setup, speculation=replace(setup.speculation, drafter_options=options))
    return build_variant(setup, network)


def _load(setup: Setup, level: str) -> Network:
    if setup.weights_memory is not None:
        if setup.device != "cpu":
            raise ConfigError(f"weights_memory streams to a CPU; device={setup.device!r}: leave one out")
        return load_streamed(setup.directory, setup.weights_memory, dtype=setup.dtype)
    return load_network(
        setup.directory,
        dtype=setup.dtype,
        device=setup.device,
        exact=setup.exact,
        rounding=lambda decoder: mixed_precision(decoder.config.num_layers) if level == MIXED else None,
    )


def build_variant(setup: Setup, network: Network) -> Variant:
    """Parts over weights that are loaded."""
    runner = make_runner(
        network,
        max_len=setup.max_len,
        exact=setup.exact,
        guarded=bool(setup.guard),
        enforce_eager=setup.enforce_eager,
        cache=setup.cache,
    )
    runner.source, runner.codec = setup.directory, setup.codec
    name = "+".join(part for part in (network.config.variant, setup.cache.variant) if part)
    dtype = str(runner.dtype).removeprefix("torch.")
    guard = find_bound(network, setup.guard)
    if isinstance(runner, GraphedRunner):
        guard = 0.0
    parts, resolved = build_parts(runner, setup.speculation, guard=guard)
    config = {
        "model": setup.directory.name, "variant": name, "dtype": dtype, "device": str(runner.device),
        "exact": setup.exact, "kernels": network.kernels, "guard": guard, "max_model_len": runner.max_len,
        "weights_memory": setup.weights_memory,
        "graphs": isinstance(runner, GraphedRunner) and not setup.enforce_eager,
        "kv_cache": runner.cache_config.layout,
        "kv_cache_dtype": dtype if setup.cache.dtype == "auto" else setup.cache.dtype,
        **resolved,
    }  # fmt: skip
    num_bytes = network.pass_bytes + resolved["drafter"].get("pass_bytes", 0)
    return Variant(parts=parts, name=name, config=config, num_bytes=num_bytes)


def network_of(parts: Parts) -> Network:
    """The network behind the target."""
    assert isinstance(parts.target, Runner)
    return parts.target.decoder


def elastic_levels(setup: Setup, network: Network, drafter: Mapping[str, Any]) -> tuple[str, ...]:
    """The levels that save memory here. `drafter`: its resolved configuration at the top.

    Raises `CapabilityError` where the target's middle layers cannot be held on 4 bits.
    """
    if network.kernels == "pytorch":
        raise CapabilityError(
            f"precision={ELASTIC!r} saves memory on the native kernels only, and {setup.directory.name} runs through "
            "PyTorch here: name a precision"
        )
    if network.config.variant:
        raise CapabilityError(
            f"precision={ELASTIC!r} rounds the target, and {setup.directory.name} is rounded already "
            f"({network.config.variant}): take the original, or precision='full'"
        )
    mixed_precision(network.config.num_layers)
    if setup.draft_rounding != "auto" or drafter["kernels"] == "pytorch":
        return FULL, MIXED
    as_stored = not drafter["variant"] or drafter["rounded_at_load"]  # the files hold what can be rounded
    return (FULL, DRAFT_INT4, MIXED) if as_stored and not drafter["variant"].startswith("int4") else (FULL, MIXED)
