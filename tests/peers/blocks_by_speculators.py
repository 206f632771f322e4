"""Tiny block networks as the released `speculators` package writes and runs them (`tests/drafters/test_blocks.py`).

Run in an environment that has speculators (0.9.0) and what outdraft needs, once:

    PYTHONPATH=src python tests/peers/blocks_by_speculators.py

It writes `tests/peers/blocks/<variant>/`: config.json and model.safetensors by `save_pretrained`, and
numbers.safetensors with the target's tables and states, tokens, anchors, and the logits of each slot behind the text's
own tokens; then it saves the same networks with outdraft, loads those in speculators, and says how far the logits are
apart.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from basis import named, randomise, reopened, saved, say_two_of_three, target_of
from safetensors.torch import save_file
from speculators.models.dflash import DFlashDraftModel, DFlashSpeculatorConfig
from speculators.models.dflash2 import DFlash2DraftModel, DFlash2SpeculatorConfig
from speculators.models.dspark import DSparkDraftModel, DSparkSpeculatorConfig
from speculators.models.xpress import XPressDraftModel, XPressSpeculatorConfig
from torch import Tensor
from transformers import Qwen3Config

from outdraft.core.learner_registry import find_learner

WIDTH, VOCAB, DRAFT_VOCAB, LENGTH, BLOCK, ANCHORS = 16, 24, 16, 19, 5, 9
HERE = Path(__file__).parent / "blocks"
DFLASH, DFLASH2, DSPARK = (
    (DFlashSpeculatorConfig, DFlashDraftModel),
    (DFlash2SpeculatorConfig, DFlash2DraftModel),
    (DSparkSpeculatorConfig, DSparkDraftModel),
)
XPRESS = (XPressSpeculatorConfig, XPressDraftModel)
SLIDES = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4, "use_sliding_window": True}
SMALL, REFINER = {"markov_rank": 4}, {"xpress_rank": 4}
VARIANTS: dict[str, tuple[str, Any, dict[str, Any], dict[str, Any]]] = {
    "dflash": ("dflash", DFLASH, {}, {}),
    "dflash_windows": ("dflash", DFLASH, SLIDES, {"draft_vocab_size": DRAFT_VOCAB}),
    "dflash_seen": ("dflash", DFLASH, SLIDES, {"sliding_window_non_causal": True}),
    "dflash2": ("dflash2", DFLASH2, {}, {"conv_group_size": 4, "selector_rank": 6, "selector_top_k": 4}),
    "dspark": ("dspark", DSPARK, {}, SMALL),
    "dspark_gated": ("dspark", DSPARK, SLIDES, {**SMALL, "markov_head_type": "gated", "draft_vocab_size": DRAFT_VOCAB}),
    "xpress": ("xpress", XPRESS, {}, REFINER),
    "xpress_narrow": ("xpress", XPRESS, SLIDES, {**REFINER, "xpress_mlp_ratio": 3, "draft_vocab_size": DRAFT_VOCAB}),
    "xpress_anchor": ("xpress", XPRESS, {}, {**REFINER, "sample_from_anchor": True}),
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
            speculators_config=named(kind, BLOCK - 1),
            **{"draft_vocab_size": VOCAB, **more},
        )
    )
    if model.use_draft_vocab:
        say_two_of_three(model, VOCAB, DRAFT_VOCAB)
    return randomise(model, sum(map(ord, variant)))


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
    if isinstance(model, XPressDraftModel):  # as servers have it: the anchor stands before its own slot
        found["scores"] = scores + model.refiner_head.block_bias(before, h)
    if isinstance(model, DFlash2DraftModel):
        candidates, corrected = model.candidate_selector.select(scores, h, before)
        found["scores"] = torch.full_like(scores, -torch.inf).scatter(-1, candidates, corrected)
    return found


def main() -> None:
    """All variants."""
    for variant, (kind, (_, model_type), _, _) in VARIANTS.items():
        model, place = theirs(variant), HERE / variant
        saved(model, place)
        generator = torch.Generator().manual_seed(1)
        states = torch.randn(LENGTH, 3 * WIDTH, generator=generator)
        ids = torch.randint(VOCAB, (LENGTH,), generator=generator)
        documents = torch.tensor([0] * 8 + [1] * 11)
        said = slots_of(model, states, ids, documents)
        tables = {"embedding": model.embed_tokens.weight.detach(), "head": model.lm_head.weight.detach()}
        inputs = {"states": states, "ids": ids, "documents": documents}
        save_file({**inputs, **tables, **said}, place / "numbers.safetensors")
        target = target_of(VOCAB, WIDTH, tie_embeddings=False)
        with torch.no_grad(), tempfile.TemporaryDirectory() as directory:
            target.embedding.copy_(tables["embedding"])
            if not model.use_draft_vocab:
                target.lm_head.weight.copy_(tables["head"])
            method = find_learner(kind)
            again = reopened(model_type, method.load(method.options(), target, place).save, target, Path(directory))
            again.load_verifier_weights()
            if isinstance(again, XPressDraftModel):  # a buffer that lies in no file
                again.refiner_head.causal_tril.copy_(model.refiner_head.causal_tril)
            scores = slots_of(again.float(), states, ids, documents)["scores"]
            kept = said["scores"] > -torch.inf
            far = float((scores - said["scores"])[kept].abs().max())
        sys.stdout.write(f"{variant}: our directory, loaded there, is {far:.1e} apart\n")


if __name__ == "__main__":
    main()
