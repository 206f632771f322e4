"""Tiny P-EAGLE networks as the released `speculators` package writes and runs them (`tests/drafters/test_p_eagle.py`).

Run in an environment that has speculators (0.9.0) and what outdraft needs, once:

    PYTHONPATH=src python tests/peers/p_eagle_by_speculators.py

It writes `tests/peers/p_eagle/<variant>/`: config.json and model.safetensors by `save_pretrained`, and
numbers.safetensors with states, tokens, and the rows that its training sampled: anchors, depths, logits. Then it saves
the same networks with outdraft, loads those in speculators, and says how far the logits are apart.
"""

import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

find_spec = importlib.util.find_spec
for name in ("torchvision", "torchaudio"):  # may be built for another torch, and nothing here looks or listens
    sys.modules[name] = None  # type: ignore[assignment]
importlib.util.find_spec = lambda name, *rest: None if name in ("torchvision", "torchaudio") else find_spec(name, *rest)

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from speculators.config import SpeculatorsConfig, VerifierConfig  # noqa: E402
from speculators.losses import resolve_loss_config  # noqa: E402
from speculators.models.attention import create_float_mask  # noqa: E402
from speculators.models.peagle import PEagleDraftModel, PEagleSpeculatorConfig, core  # noqa: E402
from speculators.proposals.greedy import GreedyTokenProposalConfig  # noqa: E402
from torch import Tensor  # noqa: E402
from transformers import LlamaConfig, Qwen3Config  # noqa: E402

from outdraft.drafters.p_eagle.formats import load_p_eagle, save_p_eagle  # noqa: E402
from outdraft.models.files.load import save_model  # noqa: E402
from outdraft.models.networks.base import Decoder, initialise  # noqa: E402
from outdraft.models.networks.config import llama_config  # noqa: E402
from outdraft.models.networks.port import facts_of  # noqa: E402

WIDTH, VOCAB, DRAFT_VOCAB, LENGTH, DEPTHS, LAYERS, MASK = 8, 12, 8, 17, 4, 6, 3
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
            speculators_config=SpeculatorsConfig(
                algorithm="peagle",
                proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=DEPTHS)],
                default_proposal_method="greedy",
                verifier=VerifierConfig(name_or_path=None, architectures=[]),
            ),
            **flags,
        )
    )
    kept = torch.tensor([i for i in range(VOCAB) if i % 3 != 2])
    t2d = torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, kept, True)
    model.load_vocab_mappings(t2d, kept - torch.arange(DRAFT_VOCAB))
    torch.manual_seed(sum(map(ord, variant)))
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape)
            parameter.copy_(1 + 0.2 * noise if parameter.dim() == 1 else noise * parameter.shape[1] ** -0.5)
    return model.eval()


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
        model.save_pretrained(place)
        for one in place.glob("*.py"):
            one.unlink()
        generator = torch.Generator().manual_seed(1)
        states = torch.randn(LENGTH, 3 * WIDTH, generator=generator)
        ids = torch.randint(VOCAB, (LENGTH + 1,), generator=generator)
        documents = torch.tensor([0] * 7 + [1] * 10)
        said = rows_of(model, states, ids, documents)
        save_file({"states": states, "ids": ids, "documents": documents, **said}, place / "numbers.safetensors")
        target = Decoder(
            llama_config(
                vocab_size=VOCAB, hidden_size=WIDTH, num_layers=LAYERS, num_heads=2, intermediate_size=8, max_len=64
            )
        )
        with tempfile.TemporaryDirectory() as directory:
            ours = Path(directory) / "ours"
            initialise(target, 0)
            save_model(target, Path(directory) / "target")
            save_p_eagle(load_p_eagle(place, facts_of(target), torch.float32), ours)
            told = json.loads((ours / "config.json").read_text())
            told["speculators_config"]["verifier"]["name_or_path"] = str(Path(directory) / "target")
            (ours / "config.json").write_text(json.dumps(told))
            again = PEagleDraftModel.from_pretrained(ours)
            again._attn_impl = again.config.transformer_layer_config._attn_implementation = "eager"
            again._create_mask_fn = create_float_mask
            far = float((rows_of(again.eval(), states, ids, documents)["logits"] - said["logits"]).abs().max())
        sys.stdout.write(f"{variant}: our directory, loaded there, is {far:.1e} apart\n")


if __name__ == "__main__":
    main()
