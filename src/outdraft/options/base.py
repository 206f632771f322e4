"""Base classes of plug-ins' options, for those options that other parts of the engine set or read too.

A part of the engine asks `isinstance(options, RoundedOptions)` and uses the field; it never looks for a name.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from outdraft.options.errors import ConfigError

NESTED = "method"  # the key by which a table among a drafter's options names a drafter, the others being its options
DraftShape = Literal["nothing", "chain", "tree"]  # what a drafter proposes
Quantization = Literal["auto", "none", "int8", "int4"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """Of every policy: a request for so many draft tokens is its deepest guess."""

    num_speculative_tokens: int = 5  # how many tokens are drafted along the longest path, at most; 0 is plain decoding


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundedOptions:
    """Of a drafter whose own weights can be rounded when they are loaded. Raises `ConfigError` for an unknown value."""

    # to how many bits the drafter's weights are rounded when they are loaded; "auto" rounds where that was measured
    # to pay
    quantization: Quantization = "auto"

    def __post_init__(self) -> None:
        if self.quantization not in get_args(Quantization):
            choices = ", ".join(get_args(Quantization))
            raise ConfigError(f"quantization={self.quantization!r} is not known: choose {choices}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOptions(RoundedOptions):
    """Of a drafter with a network of its own, named by its option `model`, which another of its kind may replace."""

    # whether the drafter's network may be replaced while requests are decoded (`engine.between_steps.adopt`)
    adopts: bool = False
