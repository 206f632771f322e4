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
from outdraft.engine.precision import BY_MEMORY, DRAFT_INT4, ELASTIC, FULL, ElasticOptions, Ladder
from outdraft.engine.variant import Setup, Variant, check_precision, elastic_levels, load_variant, network_of
from outdraft.kernels.threads import torch_threads


def make_engine(
    setup: Setup, precision: str, options: Mapping[str, Any] | None, *, stops: frozenset[int], max_num_seqs: int
) -> tuple[Engine, dict[str, Any]]:
    """Load the weights and build on them. `stops`: the tokenizer's end tokens, beside the model's own.

    Raises `ConfigError` for a precision or options that do not fit.
    """
    check_precision(setup, precision)
    if precision == ELASTIC:
        return _elastic(setup, make_options(BY_MEMORY, options or {}), stops=stops, max_num_seqs=max_num_seqs)
    if options:
        raise ConfigError(f"precision_options belong to precision='elastic', not to {precision!r}")
    variant = load_variant(setup, precision, small_draft=precision == DRAFT_INT4)
    return engine_over(variant, precision, stops=stops, max_num_seqs=max_num_seqs)


def engine_over(
    variant: Variant, precision: str, *, stops: frozenset[int], max_num_seqs: int
) -> tuple[Engine, dict[str, Any]]:
    """An engine over weights that are loaded."""
    ends = stops | frozenset(network_of(variant.parts).config.eos_ids)
    engine = Engine(variant.parts, variant=variant.name, eos_token_ids=ends, max_num_seqs=max_num_seqs)
    return engine, {**variant.config, "precision": {"name": precision}}


def _elastic(
    setup: Setup, options: ElasticOptions, *, stops: frozenset[int], max_num_seqs: int
) -> tuple[Engine, dict[str, Any]]:
    """One engine that changes its variant between requests."""
    first = load_variant(setup, FULL, small_draft=False)
    network = network_of(first.parts)
    levels = elastic_levels(setup, network, first.config["drafter"])
    threads = torch.get_num_threads()

    def load(level: str) -> Variant:
        with torch_threads(threads):  # a step has one
            return load_variant(setup, level, small_draft=DRAFT_INT4 in levels and level != FULL)

    ends = stops | frozenset(network.config.eos_ids)
    engine = ElasticEngine(first, load, Ladder(levels, options), eos_token_ids=ends, max_num_seqs=max_num_seqs)
    return engine, {"precision": {"name": ELASTIC, "levels": list(levels), **asdict(options)}}
