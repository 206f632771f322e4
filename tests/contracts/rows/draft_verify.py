"""The target without a sublayer or two."""

from outdraft.testing.spec_table import DrafterRow

ROWS = [
    DrafterRow(drafter="draft_verify", options={"skip_attention": (1,), "skip_mlp": ()}),
    DrafterRow(
        drafter="draft_verify", label="paced", options={"skip_mlp": (0,), "confidence_threshold": 0.3},
        architecture="gpt_neox",
    ),
]  # fmt: skip
