"""The target's first layers, with a trained head and with the target's own."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from contracts.sides import quiet_end, randomise
from contracts.taught import taught

from outdraft.drafters.early_exit.net import EarlyExitConfig, EarlyExitHead, save_exit_head
from outdraft.models.networks.base import Decoder
from outdraft.testing.spec_table import DrafterRow


def exit_head(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """A random exit head after the first layer."""
    width = target.config.hidden_size
    head = EarlyExitHead(EarlyExitConfig(exit_layer=1, hidden_size=width, inner_size=24), target.embedding.dtype)
    randomise(head, seed=7)
    save_exit_head(head, directory)
    return {"model": str(directory)}


ROWS = [
    DrafterRow(drafter="early_exit", side=exit_head),
    DrafterRow(drafter="early_exit", label="plain", options={"confidence_threshold": 0.2}),
]
GROUNDS = [
    DrafterRow(drafter="early_exit", target=quiet_end, side=taught("early_exit", exit_layer=1)),
    DrafterRow(drafter="early_exit", label="layerskip", target=partial(quiet_end, share=0.1)),
]
