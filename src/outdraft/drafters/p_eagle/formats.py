"""P-EAGLE directories: speculators' layout, which is our own too. Flat ones with a mask are read as well.

A directory is one of P-EAGLE if it has the tensor `mask_hidden` and names the token that stands beside it. How many
tokens it was trained to guess at once stands where servers look for it: `speculative_tokens`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from outdraft.core.head_format import HeadFormat, served_here
from outdraft.drafters.p_eagle.net import MaskedNet, masked_entries
from outdraft.drafters.shared.features.fused.files import MASK_IDS, FusedKind, read_fused
from outdraft.drafters.shared.features.fused.net import Lent
from outdraft.drafters.shared.features.fused.store import fill_fused, save_fused, speculators_format
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import TargetFacts, TargetPort
from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import shown

MODEL_TYPE = "peagle"
KIND = FusedKind(what="P-EAGLE network", model_type=MODEL_TYPE, architecture="PEagleDraftModel", masked=True)
DEPTHS = 8  # where no file says how many


def save_p_eagle(net: MaskedNet, directory: Path, dtype: torch.dtype | None = None) -> None:
    """config.json and model.safetensors, in speculators' layout. `dtype`: of the numbers; their own by default."""
    more = {MASK_IDS[0]: net.mask_token_id}
    save_fused(net, KIND, masked_entries(net.config), directory, dtype, num_tokens=net.num_depths, more=more)


def load_p_eagle(
    directory: Path, facts: TargetFacts, dtype: torch.dtype | None = None, *, lent: Lent | None = None
) -> MaskedNet:
    """The network in `directory` for this target; in the target's type unless `dtype` is given.

    lent: the target's norm and head; without them a network that has no head of its own cannot draft.

    Raises `ModelLoadError` for damaged or contradictory files, `CapabilityError` for another target's network.
    """
    files = read_fused(directory, facts.num_layers, KIND)
    config, token, depths = files.config, _mask_token(files.said, facts, directory), _depths(files.said)
    return fill_fused(
        files,
        KIND,
        facts,
        masked_entries(config),
        lambda device, vocab: MaskedNet(config, token, depths, dtype or facts.dtype, device, vocab, lent),
        directory,
    )


def _mask_token(said: Mapping[str, Any], facts: TargetFacts, directory: Path) -> int:
    found = next((said[key] for key in MASK_IDS if said.get(key) is not None), None)
    if type(found) is not int or not 0 <= found < facts.vocab_size:
        raise ModelLoadError(
            f"{directory}: {MASK_IDS[0]}={shown(found)} of config.json must be one of the target's "
            f"{facts.vocab_size} tokens: write the one that the network was trained with"
        )
    return found


def _depths(said: Mapping[str, Any]) -> int:
    """How many tokens a server is to draft, which is how many were trained."""
    table = said.get("speculators_config")
    ways = table.get("proposal_methods") if isinstance(table, Mapping) else None
    first = ways[0] if isinstance(ways, list) and ways else None
    count = first.get("speculative_tokens") if isinstance(first, Mapping) else None
    return count if type(count) is int and 1 <= count <= 64 else DEPTHS


FORMATS: tuple[HeadFormat[MaskedNet, Decoder | TargetPort, Decoder], ...] = (
    speculators_format(
        KIND,
        load_p_eagle,
        save_p_eagle,
        summary="speculators' P-EAGLE, which is ours too",
        served={"outdraft": served_here("p_eagle"), "vllm": "vllm serve {out}"},
    ),
)
