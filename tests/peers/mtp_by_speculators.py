"""A tiny MTP layer as the released `speculators` package runs it (`tests/drafters/test_mtp.py`).

Run in an environment that has speculators (0.9.0) and what outdraft needs, once:

    PYTHONPATH=src python tests/peers/mtp_by_speculators.py

It writes `tests/peers/mtp/`: the layer under the names that Qwen3-Next's checkpoints have, which are what the package's
own converter reads, and numbers.safetensors with states, tokens, embeddings, a head and the logits of each step.
"""

import json
import sys
from pathlib import Path

import torch
from basis import named, randomise
from safetensors.torch import save_file
from speculators.convert.mtp.converter import MTP_EXACT_REMAP, MTP_PREFIX_REMAP
from speculators.models.mtp import MTPDraftModel, MTPSpeculatorConfig
from transformers import Qwen3Config

WIDTH, VOCAB, LENGTH, STEPS = 16, 24, 10, 3
HERE = Path(__file__).parent / "mtp"


def published(name: str) -> str:
    """The name in a checkpoint that ships with its target."""
    for theirs, ours in MTP_EXACT_REMAP.items():
        if name == ours:
            return theirs
    return next(theirs + name.removeprefix(ours) for theirs, ours in MTP_PREFIX_REMAP if name.startswith(ours))


@torch.no_grad()
def main() -> None:
    """One layer."""
    layers = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=24,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_hidden_layers=1,
        max_position_embeddings=64,
    )
    layers._attn_implementation = "eager"
    model = MTPDraftModel(MTPSpeculatorConfig(transformer_layer_config=layers, speculators_config=named("mtp", STEPS)))
    randomise(model, 3)
    states, ids = torch.randn(LENGTH, WIDTH), torch.randint(VOCAB, (LENGTH,))
    logits, _, _ = model(input_ids=ids[None], hidden_states=states[None])
    HERE.mkdir(exist_ok=True)
    told = {**layers.to_dict(), "architectures": ["Qwen3ForCausalLM"]}
    (HERE / "config.json").write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")
    own = {name: one for name, one in model.state_dict().items() if name.startswith("mtp_layers.")}
    save_file({published(name): one.contiguous() for name, one in own.items()}, HERE / "model.safetensors")
    numbers = {
        "states": states,
        "ids": ids,
        "embeddings": model.embed_tokens.weight,
        "head": model.lm_head.weight,
        "logits": torch.cat(logits),
    }
    save_file({name: one.detach().clone().contiguous() for name, one in numbers.items()}, HERE / "numbers.safetensors")
    sys.stdout.write(f"{tuple(torch.cat(logits).shape)} logits\n")


if __name__ == "__main__":
    main()
