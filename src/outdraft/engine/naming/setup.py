"""`Setup`: everything that the user asked for, as one record."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outdraft.cache.config import CacheConfig
from outdraft.codecs.codec import Codec
from outdraft.codecs.parts import PromptParts
from outdraft.core.logprobs import LogprobsMode
from outdraft.engine.naming.combination import Combination
from outdraft.engine.scheduler.scheduler import SchedulerSettings
from outdraft.options.errors import ConfigError
from outdraft.options.shown import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What one engine was asked to be: directory, numbers, memory and speculation."""

    directory: Path
    codec: Codec[Any] | None  # the target's tokenizer, or a codec of something else
    dtype: str
    device: str
    exact: bool
    guard: float | None
    enforce_eager: bool
    max_len: int | None
    scheduling: SchedulerSettings
    weights_memory: int | None = None  # bytes; None: all weights are held
    model_impl: str = "auto"  # who computes the target's layers
    logprobs_mode: LogprobsMode = "raw_logprobs"
    cache: CacheConfig
    combination: Combination
    prompt_parts: PromptParts = field(default_factory=PromptParts)  # that are not text; of all engines over its weights

    def __post_init__(self) -> None:
        if self.codec is not None and not isinstance(self.codec, Codec):
            raise ConfigError(f"codec={shown(self.codec)} must be a Codec (outdraft.codecs.codec)")
