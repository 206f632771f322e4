"""`Setup`: everything that the user asked for, as one record."""

from dataclasses import dataclass
from math import inf
from pathlib import Path

from outdraft.cache.config import CacheConfig
from outdraft.codecs.text import TextCodec
from outdraft.core.errors import ConfigError
from outdraft.core.ranges import LARGEST
from outdraft.engine.assembly.combination import Combination


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What one engine was asked to be: directory, numbers, memory and speculation.

    Raises `ConfigError` for a number out of range.
    """

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
    model_impl: str = "auto"  # who computes the target's layers
    cache: CacheConfig
    combination: Combination

    def __post_init__(self) -> None:
        for name, value in (("max_model_len", self.max_len), ("max_num_seqs", self.max_num_seqs)):
            if value is not None and not 1 <= value <= LARGEST:
                raise ConfigError(f"{name}={value} is out of range: it must be at least 1, at most {LARGEST}")
        if self.guard is not None and not 0 <= self.guard < inf:
            raise ConfigError(
                f"guard={self.guard} is out of range: it must be a difference of two logits, at least 0 (0 is off)"
            )
