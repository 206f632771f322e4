"""Tiny block networks as the released `speculators` package writes and runs them (`tests/drafters/test_blocks.py`).

Run in an environment that has speculators (0.9.0) and what outdraft needs, once:

    PYTHONPATH=src python tests/peers/blocks_by_speculators.py

It writes `tests/peers/blocks/<variant>/`: config.json and model.safetensors by `save_pretrained`, and
numbers.safetensors with the target's tables and states, tokens, anchors, and the logits of each slot behind the text's
own tokens; then it saves the same networks with outdraft, loads those in speculators, and says how far the logits are
apart.
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
from speculators.models.attention import create_float_mask  # noqa: E402
from speculators.models.dflash import DFlashDraftModel, DFlashSpeculatorConfig  # noqa: E402
from speculators.models.dflash2 import DFlash2DraftModel, DFlash2SpeculatorConfig  # noqa: E402
from speculators.models.dspark import DSparkDraftModel, DSparkSpeculatorConfig  # noqa: E402
from speculators.proposals.greedy import GreedyTokenProposalConfig  # noqa: E402
from torch import Tensor  # noqa: E402
from transformers import Qwen3Config  # noqa: E402

from outdraft.core.registry import find_learner  # noqa: E402
from outdraft.models.files.load import save_model  # noqa: E402
from outdraft.models.networks.base import Decoder, initialise  # noqa: E402
from outdraft.models.networks.config import llama_config  # noqa: E402

WIDTH, VOCAB, DRAFT_VOCAB, LENGTH, BLOCK, LAYERS, ANCHORS = 16, 24, 16, 19, 5, 6, 9
HERE = Path(__file__).parent / "blocks"
DFLASH, DFLASH2, DSPARK = (
    (DFlashSpeculatorConfig, DFlashDraftModel),
    (DFlash2SpeculatorConfig, DFlash2DraftModel),
    (DSparkSpeculatorConfig, DSparkDraftModel),
)
SLIDES = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4, "use_sliding_window": True}
SMALL = {"markov_rank": 4}
VARIANTS: dict[str, tuple[str, Any, dict[str, Any], dict[str, Any]]] = {
    "dflash": ("dflash", DFLASH, {}, {}),
    "dflash_windows": ("dflash", DFLASH, SLIDES, {"draft_vocab_size": DRAFT_VOCAB}),
    "dflash_seen": ("dflash", DFLASH, SLIDES, {"sliding_window_non_causal": True}),
    "dflash2": ("dflash2", DFLASH2, {}, {"conv_group_size": 4, "selector_rank": 6, "selector_top_k": 4}),
    "dspark": ("dspark", DSPARK, {}, SMALL),
    "dspark_gated": ("dspark", DSPARK, SLIDES, {**SMALL, "markov_head_type": "gated", "draft_vocab_size": DRAFT_VOCAB}),
    "dspark_rnn": ("dspark", DSPARK, {}, {**SMALL, "markov_head_type": "rnn", "sample_from_anchor": False}),
}


def theirs(variant: str) -> Any:
    """A random network."""
    kind, (config, model_type), shape, more = VARIANTS[variant]
    layers = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        **{"layer_types": ["full_attention"] * 2, **shape},
    )
    layers._attn_implementation = "eager"
    model = model_type(
        config(
            transformer_layer_config=layers,
            aux_hidden_state_layer_ids=[1, 3, 5],
            block_size=BLOCK,
            mask_token_id=2,
            speculators_config=SpeculatorsConfig(
                algorithm=kind,
                proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=BLOCK - 1)],
                default_proposal_method="greedy",
                verifier=VerifierConfig(name_or_path=None, architectures=[]),
            ),
            **{"draft_vocab_size": VOCAB, **more},
        )
    )
    if model.use_draft_vocab:
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
def slots_of(model: Any, states: Tensor, ids: Tensor, documents: Tensor) -> dict[str, Tensor]:
    """The anchors [n] and logits [n, b, V'] of their slots, behind the text's tokens; confidences, where there are."""
    torch.manual_seed(5)
    hidden, logits, _, _, rows = model._backbone_forward(
        hidden_states=states[None],
        input_ids=ids[None],
        loss_mask=torch.ones(1, LENGTH, dtype=torch.long),
        verifier_last_hidden_states=torch.zeros(1, LENGTH, WIDTH),
        document_ids=documents[None],
        max_anchors=ANCHORS,
    )
    rows = rows.view(ANCHORS, BLOCK)
    h, scores, tokens = hidden.view(ANCHORS, BLOCK, -1), logits.view(ANCHORS, BLOCK, -1), ids[rows]
    before = tokens if model.config.sample_from_anchor else torch.cat((tokens[:, :1], tokens[:, :-1]), 1)
    found = {"anchors": rows[:, 0].contiguous(), "scores": scores.clone()}
    if isinstance(model, DSparkDraftModel):
        found["scores"] = scores + model.markov_head.block_bias(prev_token_ids=before, hidden_states=h)
        said = torch.cat((h, model.markov_head.prev_embeddings(before)), -1)
        found["confidence"] = model.confidence_head(said)
    if isinstance(model, DFlash2DraftModel):
        candidates, corrected = model.candidate_selector.select(scores, h, before)
        found["scores"] = torch.full_like(scores, -torch.inf).scatter(-1, candidates, corrected)
    return found


def main() -> None:
    """All variants."""
    for variant, (kind, (_, model_type), _, _) in VARIANTS.items():
        model, place = theirs(variant), HERE / variant
        model.save_pretrained(place)
        for one in place.glob("*.py"):
            one.unlink()
        generator = torch.Generator().manual_seed(1)
        states = torch.randn(LENGTH, 3 * WIDTH, generator=generator)
        ids = torch.randint(VOCAB, (LENGTH,), generator=generator)
        documents = torch.tensor([0] * 8 + [1] * 11)
        said = slots_of(model, states, ids, documents)
        tables = {"embedding": model.embed_tokens.weight.detach(), "head": model.lm_head.weight.detach()}
        inputs = {"states": states, "ids": ids, "documents": documents}
        save_file({**inputs, **tables, **said}, place / "numbers.safetensors")
        target = Decoder(
            llama_config(
                vocab_size=VOCAB,
                hidden_size=WIDTH,
                num_layers=LAYERS,
                num_heads=2,
                intermediate_size=8,
                max_len=64,
                tie_embeddings=False,
            )
        )
        with tempfile.TemporaryDirectory() as directory:
            ours = Path(directory) / "ours"
            initialise(target, 0)
            with torch.no_grad():
                target.embedding.copy_(tables["embedding"])
                if not model.use_draft_vocab:
                    target.lm_head.weight.copy_(tables["head"])
            save_model(target, Path(directory) / "target")
            method = find_learner(kind)
            method.load(method.options(), target, place).save(ours)
            told = json.loads((ours / "config.json").read_text())
            told["speculators_config"]["verifier"]["name_or_path"] = str(Path(directory) / "target")
            (ours / "config.json").write_text(json.dumps(told))
            again = model_type.from_pretrained(ours)
            again.load_verifier_weights()
            again._attn_impl = again.config.transformer_layer_config._attn_implementation = "eager"
            again._create_mask_fn = create_float_mask
            scores = slots_of(again.eval().float(), states, ids, documents)["scores"]
            kept = said["scores"] > -torch.inf
            far = float((scores - said["scores"])[kept].abs().max())
        sys.stdout.write(f"{variant}: our directory, loaded there, is {far:.1e} apart\n")


if __name__ == "__main__":
    main()
