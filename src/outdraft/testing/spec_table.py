"""One row of the table that drives the contract suite: a drafter, and how to build it on a tiny target.

    ROWS = [DrafterRow(drafter="ngram"), DrafterRow(drafter="my_package.my_module:METHOD", options={"depth": 2})]

A drafter that needs a model of its own gets it in `side`: a function of the tiny target and an empty directory, which
may write a model there and returns the options that name it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from outdraft.codecs.text import TextCodec
from outdraft.models.networks.base import Decoder
from outdraft.testing.tiny import tiny_model


def plain_target(vocab_size: int, dtype: torch.dtype) -> Decoder:
    """Two layers in the shape of Llama."""
    return tiny_model(vocab=vocab_size, dtype=dtype, seed=1)


def no_documents(target: Decoder) -> tuple[tuple[int, ...], ...]:
    """Requests bring nothing to copy from."""
    return ()


def nothing(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """A drafter that needs no model."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterRow:
    """What the suite must know of a drafter."""

    drafter: str  # a name of the catalogue, or "package.module:METHOD"
    options: Mapping[str, Any] = field(default_factory=dict)
    side: Callable[[Decoder, Path], Mapping[str, Any]] = nothing
    target: Callable[[int, torch.dtype], Decoder] = plain_target  # of this vocabulary and precision
    references: Callable[[Decoder], tuple[tuple[int, ...], ...]] = no_documents  # of every request, given the target
    codec: Callable[[int], TextCodec] | None = None  # the tiny target's tokenizer, given the size of its vocabulary
    label: str = ""  # tells rows of one drafter apart
    late: bool = False  # it proposes what an earlier pass of the text said: the shortest texts end before that
    remembers: bool = False  # keeps state across requests on purpose (a shared pool, a learned table)

    @property
    def name(self) -> str:
        return f"{self.drafter}-{self.label}" if self.label else self.drafter
