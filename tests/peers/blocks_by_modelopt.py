"""Tiny LiLiCorr networks as ModelOpt's modules run them and spell their tensors (`tests/drafters/test_blocks.py`).

Run in an environment that has nvidia-modelopt 0.48, transformers and what outdraft needs, once:

    PYTHONPATH=src python tests/peers/blocks_by_modelopt.py

It writes `tests/peers/blocks/<variant>/`: config.json with the keys of its exporter, model.safetensors with its names,
and numbers.safetensors with the target's tables and states, tokens, anchors, and the log factors of each slot's
candidates. The tokens of a block are those of its own greedy walk, so that every one of them is a candidate. Then it
writes the same networks with outdraft in the flat layout, reads them again, and says how far the weights are apart.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from basis import randomise, target_of
from modelopt.torch.speculative.plugins.modeling_lilicorr import LiLiCorrModule
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from outdraft.core.learner_registry import find_learner

WIDTH, VOCAB, LENGTH, BLOCK, LAYERS, MASK, TOP = 16, 24, 19, 5, 6, 2, 4
ANCHORS = (0, 5, 10)  # no row stands before the first
HERE = Path(__file__).parent / "blocks"
HEAD = {"num_layers": 2, "num_heads": 2, "mlp_ratio": 1.5, "factor_dim": 6, "vector_eps": 1e-4, "logit_scale": 8.0}
SHAPE = {
    "hidden_size": WIDTH,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": VOCAB,
    "max_position_embeddings": 64,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "lilicorr": {"lilicorr_hidden_size": 8},
    "lilicorr_conv": {"lilicorr_hidden_size": WIDTH, "conv_kernel_size": 2, "conv_group_size": 4},  # no token_proj
}


def theirs(variant: str) -> tuple[Any, dict[str, Any]]:
    """A random network, and what its config.json says."""
    head = {"lilicorr_candidate_topk": TOP, **{f"lilicorr_{key}": value for key, value in HEAD.items()}}
    own = {"projector_type": "lilicorr", **head, **VARIANTS[variant]}
    taps = {"mask_token_id": MASK, "target_layer_ids": [0, 2, 4]}
    config = Qwen3Config(**SHAPE, layer_types=["full_attention"] * 2, block_size=BLOCK, **taps, **own)
    config._attn_implementation = "sdpa"
    told = {"architectures": ["LiLiCorrDraftModel"], "model_type": "qwen3", "block_size": BLOCK, **SHAPE}
    told |= {"rms_norm_eps": config.rms_norm_eps, "rope_theta": 10000.0, "num_target_layers": LAYERS}
    told["dflash_config"] = {**taps, **own, "lilicorr_enabled": True, "causal": False}
    model = randomise(LiLiCorrModule(config), sum(map(ord, variant)))
    model.rotary_emb = Qwen3RotaryEmbedding(config)  # which it would make in older transformers' way
    return model, told


@torch.no_grad()
def walked(model: Any, states: Tensor, ids: Tensor, embedding: Tensor, head: Tensor) -> Tensor:
    """Log factors [n, b, V] of the slots along each block's greedy walk, whose tokens take their places in `ids`."""
    found = torch.full((len(ANCHORS), BLOCK, VOCAB), -torch.inf)
    table = nn.Embedding.from_pretrained(embedding)
    for row, anchor in enumerate(ANCHORS):
        block = torch.tensor([int(ids[anchor])] + [MASK] * (BLOCK - 1))
        h = model(
            noise_embedding=embedding[block][None],
            target_hidden=states[None, :anchor],
            position_ids=torch.arange(anchor + BLOCK)[None],
        )[:, 1:]
        best = (h @ head.T).log_softmax(-1).topk(TOP, -1)
        start, pairs = model.score_lattice(
            candidate_token_ids=best.indices[:, None],
            candidate_log_probs=best.values[:, None],
            pass_hidden=h[:, None],
            embed_tokens=table,
            target_hidden=states[None],
            anchor_positions=torch.tensor([[anchor]]),
        )
        start, pairs = model.lilicorr.compose_log_factors(start_scores=start, pair_scores=pairs)
        scores, candidates = start[0, 0], best.indices[0]
        for slot in range(1, BLOCK):
            found[row, slot, candidates[slot - 1]] = scores
            chosen = int(scores.argmax())
            ids[anchor + slot] = candidates[slot - 1, chosen]
            if slot < BLOCK - 1:
                scores = pairs[0, 0, slot - 1, chosen]
    return found


def main() -> None:
    """All variants."""
    target = target_of(VOCAB, WIDTH, LAYERS)
    for variant in VARIANTS:
        (model, told), place = theirs(variant), HERE / variant
        place.mkdir(exist_ok=True)
        (place / "config.json").write_text(json.dumps(told, indent=2) + "\n")
        save_file(dict(model.state_dict()), place / "model.safetensors")
        generator = torch.Generator().manual_seed(1)
        states = torch.randn(LENGTH, 3 * WIDTH, generator=generator)
        ids = torch.randint(VOCAB, (LENGTH,), generator=generator)
        tables = {name: torch.randn(VOCAB, WIDTH, generator=generator) for name in ("embedding", "head")}
        scores = walked(model, states, ids, tables["embedding"], tables["head"])
        inputs = {"states": states, "ids": ids, "documents": torch.zeros(LENGTH, dtype=torch.long)}
        numbers = {**inputs, **tables, "anchors": torch.tensor(ANCHORS), "scores": scores}
        save_file(numbers, place / "numbers.safetensors")
        _, flat, _ = find_learner("lilicorr").formats
        net, ours = flat.read(place, target, None), Path(tempfile.mkdtemp()) / "ours"
        assert flat.write is not None
        flat.write(net, target, "target", ours)
        again = dict(flat.read(ours, target, None).named_parameters())
        far = max(float((one - again[name]).abs().max()) for name, one in net.named_parameters())
        sys.stdout.write(f"{variant}: our directory, read again, is {far:.1e} apart\n")


if __name__ == "__main__":
    main()
