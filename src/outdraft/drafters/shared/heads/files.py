"""Heads on disk: our own layout, which is the same for all methods, and the layouts that others publish beside it."""

from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from outdraft.core.head_format import HeadFormat, served_here
from outdraft.drafters.shared.heads.net import HeadNet
from outdraft.drafters.shared.learning.vocab import STORED, require_whole, stored, vocab_in
from outdraft.models.files.foreign_heads import read_config, read_head, stored_dtype
from outdraft.models.files.head_files import load_head, save_head
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import TargetFacts, TargetPort, facts_of
from outdraft.options.errors import CapabilityError
from outdraft.weights.renamed import open_tensors

Net = TypeVar("Net", bound=HeadNet)
Formats = Seq[HeadFormat[Any, Decoder | TargetPort, Decoder]]


def save_heads(net: HeadNet, directory: Path, dtype: torch.dtype | None = None) -> None:
    """config.json and model.safetensors, in our layout. `dtype`: of the numbers; their own by default."""
    beside = stored(net.vocab, net.config.vocab_size)
    save_head(net, net.config, directory, model_type=net.model_type, dtype=dtype, beside=beside)


def load_heads(kind: type[Net], directory: Path, dtype: torch.dtype, device: torch.device | None = None) -> Net:
    """Heads in our layout, whichever target they belong to. Raises `ModelLoadError` for what is none."""

    def make(config: Any, place: torch.device | None) -> Net:
        return kind(config, dtype, place or device)

    net = load_head(directory, kind.sizes, make, model_type=f"outdraft_{kind.kind}", what=kind.what, beside=STORED)
    vocab = vocab_in(directory, net.config.draft_vocab_size, net.config.vocab_size)
    net.vocab = vocab if vocab is None else vocab.to(net.place)
    return net


def read_ours(kind: type[Net], directory: Path, target: Decoder | TargetPort, dtype: torch.dtype | None) -> Net:
    """The same for this target; as they are stored by default. Raises `CapabilityError` for another target's."""
    facts = facts_of(target)
    net = load_heads(kind, directory, dtype or stored_dtype(open_tensors(directory)), facts.device)
    net.config.require(facts, whose=kind.what)
    return net


def read_any(
    kind: type[Net], formats: Formats, directory: Path, target: Decoder | TargetPort, dtype: torch.dtype | None
) -> Net:
    """Heads in a directory of any of these layouts; without any, in ours. Raises as `read_ours` does."""
    if not formats:
        return read_ours(kind, directory, target, dtype)
    net: Net = read_head(directory, formats, target, dtype, what=kind.what)
    return net


def our_layout(kind: type[HeadNet]) -> HeadFormat[Any, Decoder | TargetPort, Decoder]:
    """For a method whose heads others publish too."""
    return HeadFormat(
        name="outdraft",
        summary="ours",
        served={"outdraft": served_here(kind.kind)},
        matches=lambda directory: read_config(directory).get("model_type") == f"outdraft_{kind.kind}",
        read=lambda directory, target, dtype: read_ours(kind, directory, target, dtype),
        write=lambda net, target, name, directory: save_heads(net, directory),
    )


def require_projection(projection: Tensor, facts: TargetFacts, directory: Path, what: str) -> None:
    """Raise `CapabilityError` unless a published projection is [V, D] of this target."""
    if tuple(projection.shape) != (facts.vocab_size, facts.hidden_size):
        raise CapabilityError(
            f"the {what} in {directory} have projections {list(projection.shape)} and cannot draft for a target of "
            f"vocabulary {facts.vocab_size} and width {facts.hidden_size}: they belong to their own target"
        )


def require_published(net: HeadNet) -> None:
    """Raise `CapabilityError` for heads of an inflated target, or of a part of a vocabulary, which no layout of others
    can say."""
    require_whole(net, "their authors'")
    if net.config.scale != 1:
        raise CapabilityError("heads of an inflated target scale its states, which the published layout cannot say")
