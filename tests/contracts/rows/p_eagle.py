"""Several tokens in one pass of EAGLE-3's layers: a tree over what each may be, a chain, fewer tokens."""

from contracts.sides import random_heads, stutterer
from contracts.taught import taught

from outdraft.testing.spec_table import DrafterRow

SHAPE = {"taps": (0, 2), "num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "head_dim": 8, "num_depths": 4}
net = random_heads("p_eagle", **SHAPE)

ROWS = [
    DrafterRow(drafter="p_eagle", side=net),
    DrafterRow(drafter="p_eagle", label="chain", side=net, options={"width": 1, "sample": "match"}),
    DrafterRow(
        drafter="p_eagle",
        label="borrowed",
        side=random_heads("p_eagle", **SHAPE, train_embedding=False, fc_norm=True, qk_norm=True),
        options={"width": 2, "sample": "match"},
    ),
]
GROUNDS = [DrafterRow(drafter="p_eagle", target=stutterer, side=taught("p_eagle", **SHAPE))]
