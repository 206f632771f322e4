"""Tiny EAGLE-3 networks as the released `speculators` package writes and runs them (`tests/drafters/test_eagle3.py`).

Run in an environment that has speculators (0.9.0) and what outdraft needs, once:

    PYTHONPATH=src python tests/peers/eagle3_by_speculators.py

It writes `tests/peers/eagle3/<variant>/`: config.json and model.safetensors by `save_pretrained`, and
numbers.safetensors with states, tokens and their logits of each draft step; then it saves the same networks with
outdraft, loads those in speculators, and says how far the logits are apart.
"""

import importlib.util
import json
import sys
import tempfile
from pathlib import Path

find_spec = importlib.util.find_spec
for name in ("torchvision", "torchaudio"):  # may be built for another torch, and nothing here looks or listens
    sys.modules[name] = None  # type: ignore[assignment]
importlib.util.find_spec = lambda name, *rest: None if name in ("torchvision", "torchaudio") else find_spec(name, *rest)

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from speculators.config import SpeculatorsConfig, VerifierConfig  # noqa: E402
from speculators.models.attention import create_float_mask  # noqa: E402
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig  # noqa: E402
from speculators.proposals.greedy import GreedyTokenProposalConfig  # noqa: E402
from transformers import LlamaConfig, Qwen3Config  # noqa: E402

from outdraft.drafters.eagle3.formats import load_eagle3, save_eagle3  # noqa: E402
from outdraft.models.files.load import save_model  # noqa: E402
from outdraft.models.networks.base import Decoder, initialise  # noqa: E402
from outdraft.models.networks.config import llama_config  # noqa: E402
from outdraft.models.networks.port import facts_of  # noqa: E402

WIDTH, VOCAB, DRAFT_VOCAB, LENGTH, STEPS, LAYERS = 16, 24, 16, 7, 3, 6
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
            speculators_config=SpeculatorsConfig(
                algorithm="eagle3",
                proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=STEPS)],
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
        model.save_pretrained(place)
        (place / "config.py").unlink(missing_ok=True)
        generator = torch.Generator().manual_seed(1)
        states = torch.randn(LENGTH, 3 * WIDTH, generator=generator)
        ids = torch.randint(VOCAB, (LENGTH + 1,), generator=generator)
        logits = steps_of(model, states, ids)
        save_file({"states": states, "ids": ids, "logits": logits}, place / "numbers.safetensors")
        target = Decoder(
            llama_config(
                vocab_size=VOCAB, hidden_size=WIDTH, num_layers=LAYERS, num_heads=2, intermediate_size=8, max_len=64
            )
        )
        with tempfile.TemporaryDirectory() as directory:
            ours = Path(directory) / "ours"
            initialise(target, 0)
            save_model(target, Path(directory) / "target")
            save_eagle3(load_eagle3(place, facts_of(target), torch.float32), ours)
            told = json.loads((ours / "config.json").read_text())
            told["speculators_config"]["verifier"]["name_or_path"] = str(Path(directory) / "target")
            (ours / "config.json").write_text(json.dumps(told))
            again = Eagle3DraftModel.from_pretrained(ours)
            again._attn_impl = again.config.transformer_layer_config._attn_implementation = "eager"
            again._create_mask_fn = create_float_mask
            far = float((steps_of(again.eval(), states, ids) - logits).abs().max())
        sys.stdout.write(f"{variant}: our directory, loaded there, is {far:.1e} apart\n")


if __name__ == "__main__":
    main()
