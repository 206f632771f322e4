"""How drafts of each kind are shaped for SmolLM2: their options, and where they differ, settings of the loop.

Sizes are near one another: a layer or two of the target's width, a vocabulary of the 8,192 tokens that its answers have
most, blocks of 8. `train_all.py` trains them on a GPU beside each other, `equal_data.py` on a CPU one after the other.
"""

from typing import Any

COUNTED = {"draft_vocab_size": 8192}
BLOCK = {**COUNTED, "block_size": 8, "anchors": 128}
HEADS = {**COUNTED, "num_heads": 4, "num_layers": 2, "own_projections": False}
OPTIONS: dict[str, dict[str, Any]] = {
    "eagle3": {**COUNTED, "num_steps": 5, "fc_norm": True, "norm_output": True},
    "dflash": BLOCK,
    "dspark": {**BLOCK, "rank": 64},
    "dflash2": {**BLOCK, "selector_rank": 64},
    "lilicorr": {"block_size": 8, "anchors": 128},
    "p_eagle": {**COUNTED, "anchors": 128, "num_layers": 2, "fc_norm": True},
    "mtp": {**COUNTED, "num_steps": 4, "beta": 0.8},
    "eagle": {**COUNTED, "num_steps": 4},
    "eagle1": COUNTED,
    "hass": COUNTED,
    "hydra": HEADS,
    "medusa": HEADS,
    "amphista": HEADS,
    "redrafter": {**COUNTED, "num_steps": 5, "own_projections": False},
    "blockwise": {**COUNTED, "num_heads": 4},
    "ctc": COUNTED,
    "specdec": BLOCK,
    "falcon": {**COUNTED, "anchors": 128},
    "kangaroo": COUNTED,
    "parallel_sampling": {},
    "draft_model": {"layers": [0, 1, 29], "borrow": True},
}
LOOPS: dict[str, dict[str, Any]] = {"draft_model": {"lr": 1e-3, "muon_lr": 3e-3}}
SHIPPED = ("eagle3", "mtp", "hydra", "medusa", "draft_model")  # whose runs on a GPU are on record
