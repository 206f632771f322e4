"""`Setup`: everything that the user asked for, as one record, checked before any weights file is opened."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from outdraft.cache.config import CacheConfig
from outdraft.codecs.codec import Codec
from outdraft.codecs.parts import PromptParts
from outdraft.core.logprobs import LogprobsMode
from outdraft.engine.assembly.precision import DRAFT_INT4, ELASTIC, FULL, MIXED, PRECISIONS
from outdraft.engine.naming.combination import Combination
from outdraft.engine.scheduler.scheduler import SchedulerSettings
from outdraft.models.target.open_network import OpenedModel, check_model_impl, open_model
from outdraft.options.errors import ConfigError
from outdraft.options.near_miss import near_miss
from outdraft.options.ranges import check_number
from outdraft.options.shown import shown

_MOST_GUARD = 1e6  # logits


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What one engine was asked to be: directory, numbers, memory and speculation.

    Raises `ConfigError` for what is no codec, a number out of range, or a precision that cannot be had here.
    """

    directory: Path  # or a GGUF file
    codec: Codec[Any] | None  # the target's tokenizer, or a codec of something else
    dtype: str
    device: torch.device
    exact: bool
    guard: float | None
    enforce_eager: bool
    max_len: int | None
    scheduling: SchedulerSettings
    precision: str = FULL
    precision_options: Mapping[str, Any] = field(default_factory=dict)  # of "elastic"
    weights_memory: int | None = None  # bytes; None: all weights are held
    model_impl: str = "auto"  # who computes the target's layers
    logprobs_mode: LogprobsMode = "raw_logprobs"
    cache: CacheConfig
    combination: Combination
    renews: bool = False  # networks of drafters may be replaced while the engine runs
    prompt_parts: PromptParts = field(default_factory=PromptParts)  # that are not text; of all engines over its weights

    def __post_init__(self) -> None:
        if self.codec is not None and not isinstance(self.codec, Codec):
            raise ConfigError(f"codec={shown(self.codec)} must be a Codec (outdraft.codecs.codec)")
        check_number("max_model_len", self.max_len, least=1)
        check_number("guard", self.guard, least=0, most=_MOST_GUARD, note="a difference of two logits; 0 is off")
        if self.precision not in PRECISIONS:
            near = near_miss(self.precision, list(PRECISIONS))
            raise ConfigError(f"precision={shown(self.precision)} is not known{near}; known: {', '.join(PRECISIONS)}")
        if self.weights_memory is not None and self.precision in (MIXED, ELASTIC):
            raise ConfigError(
                f"precision={self.precision!r} rounds weights that are in memory, and weights_memory leaves most on "
                "disk: leave one out, or round the model first (`outdraft quantize`)"
            )
        check_model_impl(self.model_impl, streams=self.weights_memory is not None)
        if self.weights_memory is not None and self.device.type != "cpu":
            raise ConfigError(f"weights_memory streams to a CPU; device={str(self.device)!r}: leave one out")
        if self.precision == DRAFT_INT4:
            self.combination.require_own_weights()
        if self.precision_options and self.precision != ELASTIC:
            raise ConfigError(f"precision_options belong to precision='elastic', not to {self.precision!r}")

    def open_model(self) -> OpenedModel:
        """What the model's files say, before any weight is read."""
        streams = self.weights_memory is not None
        return open_model(self.directory, self.dtype, self.device, model_impl=self.model_impl, streams=streams)
