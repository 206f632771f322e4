"""From what the user asked for to an engine that runs: over one variant, or over the levels of elastic precision.

Data in: a setup and the name of a precision; data out: the engine, and what runs as plain data.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from outdraft.core.errors import ConfigError
from outdraft.core.registry import make_options
from outdraft.engine.elastic import ElasticEngine
from outdraft.engine.loop import Engine
from outdraft.engine.precision import BY_MEMORY, DRAFT_INT4, ELASTIC, FULL, MIXED, ElasticOptions, Ladder
from outdraft.engine.variant import (
    Setup,
    Variant,
    build_variant,
    check_precision,
    elastic_levels,
    load_variant,
    network_of,
)
from outdraft.kernels.threads import torch_threads
from outdraft.models.network import Network


def make_engine(setup: Setup, precision: str, options: Mapping[str, Any] | None) -> tuple[Engine, dict[str, Any]]:
    """Load the weights and build on them.

    Raises `ConfigError` for a precision or options that do not fit.
    """
    check_precision(setup, precision)
    if precision == ELASTIC:
        return _elastic(setup, make_options(BY_MEMORY, options or {}))
    if options:
        raise ConfigError(f"precision_options belong to precision='elastic', not to {precision!r}")
    return _engine_over(setup, load_variant(setup, precision, small_draft=precision == DRAFT_INT4), precision)


def engine_beside(setup: Setup, engine: Engine, precision: Mapping[str, Any]) -> tuple[Engine, dict[str, Any]]:
    """Another engine over the weights that `engine` holds now. `precision`: what its configuration says of them."""
    is_mixed = precision.get("level", precision["name"]) == MIXED
    return _engine_over(setup, build_variant(setup, network_of(engine.parts)), MIXED if is_mixed else FULL)


def _engine_over(setup: Setup, variant: Variant, precision: str) -> tuple[Engine, dict[str, Any]]:
    engine = Engine(variant.parts, variant=variant.name, **_settings(setup, network_of(variant.parts)))
    return engine, {**variant.config, "precision": {"name": precision}}


def _elastic(setup: Setup, options: ElasticOptions) -> tuple[Engine, dict[str, Any]]:
    """One engine that changes its variant between requests."""
    first = load_variant(setup, FULL, small_draft=False)
    network = network_of(first.parts)
    levels = elastic_levels(setup, network, first.config["drafter"])
    threads = torch.get_num_threads()

    def load(level: str) -> Variant:
        with torch_threads(threads):  # a step has one
            return load_variant(setup, level, small_draft=DRAFT_INT4 in levels and level != FULL)

    engine = ElasticEngine(first, load, Ladder(levels, options), **_settings(setup, network))
    return engine, {"precision": {"name": ELASTIC, "levels": list(levels), **asdict(options)}}


def _settings(setup: Setup, network: Network) -> dict[str, Any]:
    """What an engine is told besides its parts: the tokenizer's end tokens count beside the model's own."""
    own = setup.codec.eos_token_ids if setup.codec is not None else ()
    return {"eos_token_ids": frozenset((*own, *network.config.eos_ids)), "max_num_seqs": setup.max_num_seqs}
