"""The target without a sublayer or two."""

import torch

from outdraft.models.networks.base import Decoder
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.tiny import tiny_model


def gpt_neox(vocab_size: int, dtype: torch.dtype) -> Decoder:
    """Attention and feed-forward part side by side."""
    return tiny_model("gpt_neox", vocab=vocab_size, dtype=dtype, seed=1)


_SKIP = {"skip_attention": (1,), "skip_mlp": ()}
ROWS = [
    DrafterRow(drafter="draft_verify", options=_SKIP),
    DrafterRow(
        drafter="draft_verify", label="paced", options={"skip_mlp": (0,), "confidence_threshold": 0.3}, target=gpt_neox
    ),
]
# of two layers every second one in the middle is none, and the recipe would leave out nothing
GROUNDS = [DrafterRow(drafter="draft_verify", label="draft_and_verify", options=_SKIP)]
