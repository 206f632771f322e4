"""Tiny Domino networks as SpecForge's modules write and run them (`tests/drafters/test_blocks.py`).

Run in an environment that has transformers and what outdraft needs, once:

    PYTHONPATH=src:CHECKOUT_OF_sgl-project/SpecForge python tests/peers/blocks_by_specforge.py

It writes `tests/peers/blocks/<variant>/`: config.json and model.safetensors by `save_pretrained`, and
numbers.safetensors with the target's tables and states, tokens, anchors, and the logits of each slot behind the text's
own tokens; then it writes the same networks with outdraft in the flat layout, loads those there, and says how far the
logits are apart.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from basis import randomise, saved, target_of
from safetensors.torch import save_file
from specforge.modeling.draft.domino import DominoDraftModel
from torch import Tensor
from transformers import Qwen3Config

from outdraft.core.learner_registry import find_learner

WIDTH, VOCAB, LENGTH, BLOCK, LAYERS, MASK = 16, 24, 19, 5, 6, 2
ANCHORS = (1, 4, 8, 13)
HERE = Path(__file__).parent / "blocks"
HEAD = {"projector_type": "domino", "emb_dim": 5, "gru_hidden_dim": 6}
VARIANTS: dict[str, dict[str, Any]] = {
    "domino": {"shift_label": True, "pure_draft_prefix_len": 1},  # as released
    "domino_whole": {"shift_label": True, "pure_draft_prefix_len": 0},
    "domino_fill": {"shift_label": False, "pure_draft_prefix_len": 1},
}


def theirs(variant: str) -> Any:
    """A random network."""
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
        layer_types=["full_attention"] * 2,
        block_size=BLOCK,
        emb_dim=HEAD["emb_dim"],
        dflash_config={"mask_token_id": MASK, "target_layer_ids": [0, 2, 4], **HEAD, **VARIANTS[variant]},
    )
    config._attn_implementation = "eager"
    return randomise(DominoDraftModel(config), sum(map(ord, variant)))


@torch.no_grad()
def slots_of(model: Any, states: Tensor, ids: Tensor, embedding: Tensor, head: Tensor) -> Tensor:
    """The logits [n, b, V] of all slots, behind the text's tokens."""
    found = []
    for anchor in ANCHORS:
        block = torch.tensor([int(ids[anchor])] + [MASK] * (BLOCK - 1))
        h = model(
            position_ids=torch.arange(anchor + BLOCK)[None],
            noise_embedding=embedding[block][None],
            target_hidden=states[None, :anchor],
        )
        tokens = ids[torch.arange(anchor, anchor + BLOCK).clamp_max(LENGTH - 1)]
        scores = model.apply_logits_head(
            (h @ head.T)[:, None], prev_token_embeddings=embedding[tokens][None, None], hidden_states=h[:, None]
        )
        found.append(scores[0, 0])
    return torch.stack(found)


def main() -> None:
    """All variants."""
    target = target_of(VOCAB, WIDTH, LAYERS)
    for variant in VARIANTS:
        model, place = theirs(variant), HERE / variant
        saved(model, place)
        generator = torch.Generator().manual_seed(1)
        states = torch.randn(LENGTH, 3 * WIDTH, generator=generator)
        ids = torch.randint(VOCAB, (LENGTH,), generator=generator)
        tables = {name: torch.randn(VOCAB, WIDTH, generator=generator) for name in ("embedding", "head")}
        inputs = {"states": states, "ids": ids, "documents": torch.zeros(LENGTH, dtype=torch.long)}
        inputs["anchors"] = torch.tensor(ANCHORS)
        scores = slots_of(model, states, ids, tables["embedding"], tables["head"])
        save_file(
            {**inputs, **tables, "anchors": torch.tensor(ANCHORS), "scores": scores}, place / "numbers.safetensors"
        )
        _, flat, _ = find_learner("domino").formats
        ours = Path(tempfile.mkdtemp()) / "ours"
        assert flat.write is not None
        flat.write(flat.read(place, target, None), target, "target", ours)
        again = DominoDraftModel.from_pretrained(ours, attn_implementation="eager").eval().float()
        far = float((slots_of(again, states, ids, tables["embedding"], tables["head"]) - scores).abs().max())
        sys.stdout.write(f"{variant}: our directory, loaded there, is {far:.1e} apart\n")


if __name__ == "__main__":
    main()
