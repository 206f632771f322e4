"""Tiny block networks as z-lab's released package writes and runs them (`tests/drafters/test_blocks.py`).

Run in an environment that has `dflash` (0.1.0), transformers and what outdraft needs, once:

    PYTHONPATH=src python tests/peers/blocks_by_zlab.py

It writes `tests/peers/blocks/<variant>/`: config.json and model.safetensors by `save_pretrained`, and
numbers.safetensors with the target's tables and states, tokens, anchors, and the logits of each slot behind the text's
own tokens; then it writes the same networks with outdraft in z-lab's layout, loads those there, and says how far the
logits are apart.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from basis import randomise, saved, target_of
from dflash.model import DFlash2DraftModel, DFlashDraftModel
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import Qwen3Config

from outdraft.core.learner_registry import find_learner

WIDTH, VOCAB, LENGTH, BLOCK, LAYERS, MASK = 16, 24, 19, 5, 6, 2
ANCHORS = (1, 4, 8, 13, 16)
HERE = Path(__file__).parent / "blocks"
SELECTOR = {"conv_kernel_size": 2, "conv_group_size": 4, "selector_rank": 6, "selector_top_k": 4}
# wider than any text here: its edge is another one than speculators'
SLIDES = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 64, "use_sliding_window": True}
VARIANTS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "dflash_zlab": (DFlashDraftModel, {}, {"output_multiplier": 0.5, "final_logit_softcapping": 3.0}),
    "dflash_zlab_slides": (DFlashDraftModel, SLIDES, {}),  # no `is_causal`: the first layer is causal
    "dflash_zlab_causal": (DFlashDraftModel, {"is_causal": True}, {"target_layer_ids": None}),  # its usual taps
    "dflash2_zlab": (DFlash2DraftModel, {**SLIDES, "is_causal": False}, {**SELECTOR, "input_embedding_scale": 2.0}),
}


def theirs(variant: str) -> Any:
    """A random network."""
    kind, shape, nested = VARIANTS[variant]
    told = {"block_size": BLOCK, "mask_token_id": MASK, "target_layer_ids": [0, 2, 4], **nested}
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        num_target_layers=LAYERS,
        dflash_config={key: value for key, value in told.items() if value is not None},
        **{"layer_types": ["full_attention"] * 2, **shape},
    )
    model = kind(config)
    return randomise(model, sum(map(ord, variant)))


@torch.no_grad()
def slots_of(model: Any, states: Tensor, ids: Tensor, embedding: Tensor, head: nn.Linear) -> Tensor:
    """The logits [n, b, V] of all slots, behind the text's tokens."""
    found = []
    scale = model.config.dflash_config.get("input_embedding_scale", 1.0)
    for anchor in ANCHORS:
        block = torch.tensor([int(ids[anchor])] + [MASK] * (BLOCK - 1))
        positions = torch.arange(anchor + BLOCK)[None]
        h = model(
            position_ids=positions, noise_embedding=scale * embedding[block][None], target_hidden=states[None, :anchor]
        )[0]
        scores = model.compute_logits(h, head)
        if isinstance(model, DFlash2DraftModel):
            part, places = model.candidate_selector, torch.arange(anchor, anchor + BLOCK).clamp_max(LENGTH - 1)
            before = ids[torch.cat((places[:1], places[:-1]))]
            best = scores.topk(part.top_k, -1)
            asked = part.predecessor_codebook(before) * part.hidden_projection(h)
            pairs = torch.einsum("sr,skr->sk", asked, part.successor_codebook(best.indices))
            scores = torch.full_like(scores, -torch.inf).scatter(-1, best.indices, best.values + pairs)
        found.append(scores)
    return torch.stack(found)


def ours(variant: str, place: Path, out: Path) -> Path:
    """The network in `place`, written again by outdraft."""
    target = target_of(VOCAB, WIDTH)
    _, flat, _ = find_learner(variant.partition("_")[0]).formats
    flat.write(flat.read(place, target, None), target, "target", out)
    return out


def main() -> None:
    """All variants."""
    for variant in VARIANTS:
        model, place = theirs(variant), HERE / variant
        saved(model, place)
        generator = torch.Generator().manual_seed(1)
        states = torch.randn(LENGTH, len(model.target_layer_ids) * WIDTH, generator=generator)
        ids = torch.randint(VOCAB, (LENGTH,), generator=generator)
        tables = {name: torch.randn(VOCAB, WIDTH, generator=generator) for name in ("embedding", "head")}
        head = nn.Linear(WIDTH, VOCAB, bias=False)
        head.weight.data.copy_(tables["head"])
        inputs = {"states": states, "ids": ids, "documents": torch.zeros(LENGTH, dtype=torch.long)}
        scores = slots_of(model, states, ids, tables["embedding"], head)
        said = {"anchors": torch.tensor(ANCHORS), "scores": scores}
        save_file({**inputs, **tables, **said}, place / "numbers.safetensors")
        again = type(model).from_pretrained(ours(variant, place, Path(tempfile.mkdtemp()) / "ours")).eval().float()
        kept = scores > -torch.inf
        far = float((slots_of(again, states, ids, tables["embedding"], head) - scores)[kept].abs().max())
        sys.stdout.write(f"{variant}: our directory, loaded there, is {far:.1e} apart\n")


if __name__ == "__main__":
    main()
