"""The target's first layers and an adapter with rows of its own."""

from functools import partial

from contracts.sides import quiet_end, random_heads
from contracts.taught import taught

from outdraft.testing.spec_table import DrafterRow

adapter = random_heads("kangaroo", num_heads=2, num_kv_heads=1, head_dim=8)

ROWS = [
    DrafterRow(drafter="kangaroo", side=adapter),
    DrafterRow(drafter="kangaroo", label="unsure", side=adapter, options={"confidence_threshold": 0.2}),
    DrafterRow(drafter="kangaroo", label="fewer tokens", side=random_heads("kangaroo", draft_vocab_size=5)),
]
GROUNDS = [DrafterRow(drafter="kangaroo", target=partial(quiet_end, share=0.3), side=taught("kangaroo", exit_layer=1))]
LEARNING = {"fewer tokens": {"draft_vocab_size": 5}}
