"""The target without a sublayer or two."""

import torch

from outdraft.models.base import Decoder
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.tiny import tiny_model


def gpt_neox(vocab_size: int, dtype: torch.dtype) -> Decoder:
    """Attention and feed-forward part side by side."""
    return tiny_model("gpt_neox", vocab=vocab_size, dtype=dtype, seed=1)


ROWS = [
    DrafterRow(drafter="draft_verify", options={"skip_attention": (1,), "skip_mlp": ()}),
    DrafterRow(
        drafter="draft_verify", label="paced", options={"skip_mlp": (0,), "confidence_threshold": 0.3}, target=gpt_neox
    ),
]
