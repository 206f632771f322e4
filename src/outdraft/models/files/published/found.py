"""What a format's reader finds in a checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass

from outdraft.models.files.published.linear import StoredLinear


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`maps`: by Hugging Face's name of the module ("model.layers.0.mlp.up_proj")."""

    name: str  # of the format, for the variant: "gptq"
    maps: Mapping[str, StoredLinear]
    unread: tuple[str, ...] = ()  # endings of tensors that say nothing of the weights
    notes: tuple[str, ...] = ()  # what is not done as its maker does it
