"""Tiny P-EAGLE networks as the released `speculators` package writes and runs them (`tests/drafters/test_p_eagle.py`).

Run in an environment that has speculators (0.9.0) and what outdraft needs, once:

    PYTHONPATH=src python tests/peers/p_eagle_by_speculators.py

It writes `tests/peers/p_eagle/<variant>/`: config.json and model.safetensors by `save_pretrained`, and
numbers.safetensors with states, tokens, and the rows that its training sampled: anchors, depths, logits. Then it saves
the same networks with outdraft, loads those in speculators, and says how far the logits are apart.
"""

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
from basis import named, randomise, reopened, saved, say_two_of_three, target_of
from safetensors.torch import save_file
from speculators.losses import resolve_loss_config
from speculators.models.peagle import PEagleDraftModel, PEagleSpeculatorConfig, core
from torch import Tensor
from transformers import LlamaConfig, Qwen3Config

from outdraft.drafters.p_eagle.formats import load_p_eagle, save_p_eagle
from outdraft.models.networks.port import facts_of

WIDTH, VOCAB, DRAFT_VOCAB, LENGTH, DEPTHS, MASK = 8, 12, 8, 17, 4, 3
HERE = Path(__file__).parent / "p_eagle"
VARIANTS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "plain": (LlamaConfig, {}, {}),
    "three_layers": (Qwen3Config, {"num_hidden_layers": 3}, {"fc_norm": True, "norm_before_residual": True}),
}


def theirs(variant: str) -> PEagleDraftModel:
    """A random network."""
    kind, shape, flags = VARIANTS[variant]
    layers = kind(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=8,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
        max_position_embeddings=64,
        **{"num_hidden_layers": 1, **shape},
    )
    layers._attn_implementation = "eager"
    model = PEagleDraftModel(
        PEagleSpeculatorConfig(
            transformer_layer_config=layers,
            draft_vocab_size=DRAFT_VOCAB,
            eagle_aux_hidden_state_layer_ids=[1, 3, 5],
            mask_token_id=MASK,
            speculators_config=named("peagle", DEPTHS),
            **flags,
        )
    )
    say_two_of_three(model, VOCAB, DRAFT_VOCAB)
    return randomise(model, sum(map(ord, variant)))


@torch.no_grad()
def rows_of(model: PEagleDraftModel, states: Tensor, ids: Tensor, documents: Tensor) -> dict[str, Tensor]:
    """The sampled rows of a pass: anchors [n], depths [n], logits [n, V']."""
    seen: dict[str, Tensor] = {}
    sample = core.generate_cod_sample_indices

    def watched(*args: Any, **more: Any) -> tuple[Tensor, Tensor]:
        seen["anchors"], seen["depths"] = sample(*args, **more)
        return seen["anchors"], seen["depths"]

    watching = model.lm_head.register_forward_hook(lambda module, inputs, out: seen.update(logits=out[0].clone()))
    core.generate_cod_sample_indices = watched
    torch.manual_seed(5)
    model(
        hidden_states=states[None],
        input_ids=ids[None, 1:],
        document_ids=documents[None],
        loss_mask=torch.ones(1, LENGTH),
        verifier_last_hidden_states=torch.zeros(1, LENGTH, WIDTH),
        num_depths=DEPTHS,
        loss_config=resolve_loss_config("kl_div", "eager"),
    )
    core.generate_cod_sample_indices = sample
    watching.remove()
    return seen


def main() -> None:
    """All variants."""
    for variant in VARIANTS:
        model, place = theirs(variant), HERE / variant
        saved(model, place)
        generator = torch.Generator().manual_seed(1)
        states = torch.randn(LENGTH, 3 * WIDTH, generator=generator)
        ids = torch.randint(VOCAB, (LENGTH + 1,), generator=generator)
        documents = torch.tensor([0] * 7 + [1] * 10)
        said = rows_of(model, states, ids, documents)
        save_file({"states": states, "ids": ids, "documents": documents, **said}, place / "numbers.safetensors")
        with tempfile.TemporaryDirectory() as directory:
            target = target_of(VOCAB, WIDTH)
            net = load_p_eagle(place, facts_of(target), torch.float32)
            again = reopened(PEagleDraftModel, partial(save_p_eagle, net), target, Path(directory))
            far = float((rows_of(again, states, ids, documents)["logits"] - said["logits"]).abs().max())
        sys.stdout.write(f"{variant}: our directory, loaded there, is {far:.1e} apart\n")


if __name__ == "__main__":
    main()
