"""Tiny EAGLE-3 networks as the released `speculators` package writes and runs them (`tests/drafters/test_eagle3.py`).

Run in an environment that has speculators (0.9.0) and what outdraft needs, once:

    PYTHONPATH=src python tests/peers/eagle3_by_speculators.py

It writes `tests/peers/eagle3/<variant>/`: config.json and model.safetensors by `save_pretrained`, and
numbers.safetensors with states, tokens and their logits of each draft step; then it saves the same networks with
outdraft, loads those in speculators, and says how far the logits are apart.
"""

import sys
import tempfile
from functools import partial
from pathlib import Path

import torch
from basis import named, randomise, reopened, saved, say_two_of_three, target_of
from safetensors.torch import save_file
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
from transformers import LlamaConfig, Qwen3Config

from outdraft.drafters.eagle3.formats import load_eagle3, save_eagle3
from outdraft.models.networks.port import facts_of

WIDTH, VOCAB, DRAFT_VOCAB, LENGTH, STEPS = 16, 24, 16, 7, 3
HERE = Path(__file__).parent / "eagle3"
VARIANTS = {
    "plain": (LlamaConfig, {}, {}),
    "three_one": (LlamaConfig, {}, {"fc_norm": True, "norm_output": True, "norm_before_residual": True}),
    "qwen_two_layers": (Qwen3Config, {"num_hidden_layers": 2}, {"norm_before_fc": True}),
}


def theirs(variant: str) -> Eagle3DraftModel:
    """A random network."""
    kind, shape, flags = VARIANTS[variant]
    layers = kind(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=24,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        **{"num_hidden_layers": 1, **shape},
    )
    layers._attn_implementation = "eager"
    model = Eagle3DraftModel(
        Eagle3SpeculatorConfig(
            transformer_layer_config=layers,
            draft_vocab_size=DRAFT_VOCAB,
            eagle_aux_hidden_state_layer_ids=[1, 3, 5],
            speculators_config=named("eagle3", STEPS),
            **flags,
        )
    )
    say_two_of_three(model, VOCAB, DRAFT_VOCAB)
    return randomise(model, sum(map(ord, variant)))


@torch.no_grad()
def steps_of(model: Eagle3DraftModel, states: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Logits [STEPS, T, V'] of the draft steps; tokens are the text's in each."""
    seen: list[torch.Tensor] = []
    watching = model.lm_head.register_forward_hook(lambda module, inputs, out: seen.append(out[0].clone()))
    model(
        hidden_states=states[None],
        input_ids=ids[None, 1:],
        document_ids=torch.zeros(1, LENGTH, dtype=torch.long),
        ttt_steps=STEPS,
    )
    watching.remove()
    return torch.stack(seen)


def main() -> None:
    """All variants."""
    for variant in VARIANTS:
        model, place = theirs(variant), HERE / variant
        saved(model, place)
        generator = torch.Generator().manual_seed(1)
        states = torch.randn(LENGTH, 3 * WIDTH, generator=generator)
        ids = torch.randint(VOCAB, (LENGTH + 1,), generator=generator)
        logits = steps_of(model, states, ids)
        save_file({"states": states, "ids": ids, "logits": logits}, place / "numbers.safetensors")
        with tempfile.TemporaryDirectory() as directory:
            target = target_of(VOCAB, WIDTH)
            net = load_eagle3(place, facts_of(target), torch.float32)
            again = reopened(Eagle3DraftModel, partial(save_eagle3, net), target, Path(directory))
            far = float((steps_of(again, states, ids) - logits).abs().max())
        sys.stdout.write(f"{variant}: our directory, loaded there, is {far:.1e} apart\n")


if __name__ == "__main__":
    main()
