"""A block network in a GGUF file of llama.cpp's architecture `dflash`: its metadata as a flat config.json, its tensors.

    dflash.target_layers [1, 3, 5] -> aux_hidden_state_layer_ids        enc.output_norm.weight -> hidden_norm.weight

One architecture carries every kind, told apart by tensors; what stands behind the head keeps llama.cpp's names, which
each kind translates (`BlockKind.also`). Facts from llama.cpp's converter (https://github.com/ggml-org/llama.cpp, 2026).
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outdraft.drafters.shared.blocks.keys import SINK_TENSOR, SINKS
from outdraft.models.files.foreign_heads import tensor_names
from outdraft.models.files.gguf import GgufModel
from outdraft.models.files.gguf_families import BLOCK_DRAFTS, LAYER, GgufFamily, Keys, kinds_of
from outdraft.models.files.gguf_meta import GgufMeta
from outdraft.models.files.load import read_json
from outdraft.options.errors import ModelLoadError
from outdraft.weights.renamed import open_tensors
from outdraft.weights.source import TensorSource

_SCALES = {"logit_scale": "output_multiplier", "embedding_scale": "input_embedding_scale"}
_SAME = ("block_size", "sample_from_anchor", "final_logit_softcapping")
_ACTIVATION = "hidden_activation"


def open_blocks(place: Path, own: Collection[str]) -> tuple[Mapping[str, Any], TensorSource]:
    """What config.json says, and the tensors, of a directory or a GGUF file. `own`: keys that a kind reads itself.

    Raises `ModelLoadError` for damaged files, and for metadata of a GGUF file that are not read.
    """
    if place.is_file():
        file = GgufBlocks(place)
        return file.read_keys(own), file
    return read_json(place / "config.json"), open_tensors(place)


def _keys(meta: GgufMeta, told: Keys) -> Keys:
    """Of config.json, beside or in place of a Qwen3's."""
    mask, window = meta.token_id("mask"), meta.value("attention.sliding_window")
    if meta.value(_ACTIVATION, "silu") != "silu":
        raise meta.error(_ACTIVATION)
    meta.value("has_confidence_head")  # the tensors say it
    keys: Keys = {name: meta.value(name) for name in _SAME}
    keys |= {name: meta.number(key, 1.0) for key, name in _SCALES.items()}
    keys |= {"aux_hidden_state_layer_ids": meta.value("target_layers"), "mask_token_id": mask}
    keys |= {"is_causal": meta.value("attention.causal"), "tie_word_embeddings": False}
    keys["attention_value_scale"] = meta.value("attention.value_scale")
    if window:
        keys |= {"sliding_window": window, "layer_types": kinds_of(meta, 0)}
    return {key: value for key, value in keys.items() if value is not None}


_BLOCKS = GgufFamily(
    model_type="qwen3",
    top_names={
        "fc": "fc",
        "enc.output_norm": "hidden_norm",
        "output_norm": "norm",
        "token_embd": "embed_tokens",
        "output": "lm_head",
    },
    layer_names=LAYER | {"attn_sinks": SINK_TENSOR},
    keys=_keys,
    two_ways=True,
)


class GgufBlocks(GgufModel):
    """The tensors under the names of z-lab's directories, `model.` before those of layers."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, families={BLOCK_DRAFTS: _BLOCKS})

    def vocab_size(self) -> int:
        """Of the target, whose vocabulary lies in the file."""
        return self._meta.count("vocab_size", len(self._file.get("tokenizer.ggml.tokens", ())))

    def read_keys(self, own: Collection[str]) -> dict[str, object]:
        """As config.json has them. `own`: keys that a kind reads itself, which have the same names here."""
        told = {key: value for key in own if (value := self._meta.value(key)) is not None}
        if "d2t" in self:
            told["draft_vocab_size"] = self.shape("d2t")[0]
        if any(f".{SINK_TENSOR}." in name for name in self):  # no key says it
            told[SINKS] = True
        return {**self.read_config(), **told}

    def __getitem__(self, name: str) -> Tensor:
        found = super().__getitem__(name)
        if name != "d2t":
            return found
        return found.long() - torch.arange(len(found))  # llama.cpp keeps the target's ids themselves


def names_in(place: Path) -> frozenset[str]:
    """The names of the tensors in a directory or a GGUF file; none where nothing can be read."""
    if not place.is_file():
        return tensor_names(place)
    try:
        return frozenset(GgufBlocks(place))
    except ModelLoadError:
        return frozenset()
