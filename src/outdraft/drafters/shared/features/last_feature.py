"""EAGLE-1's network: one decoder layer that extrapolates the target's last feature, the state behind its final norm.

Li et al., "EAGLE: speculative sampling requires rethinking feature uncertainty", 2024, https://arxiv.org/abs/2401.15077;
HASS (Zhang et al., 2024, https://arxiv.org/abs/2408.15766) trains the same network otherwise.

    embedding of x_{i+1} --+
                           cat -- fc --> layer 0, without an input norm --> g_i -- the target's head --> x_{i+2}
    f_i -------------------+                                                 +---> stands in for f_{i+1}

There is no norm of its own behind the layers: g is to be what the target's final norm makes, and the head reads it so.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from outdraft.drafters.shared.features.borrowed_head import (
    LAYERS,
    BorrowedHeadConfig,
    BorrowedHeadNet,
    layers_told,
    read_layers,
)
from outdraft.drafters.shared.features.network import NativeParts
from outdraft.drafters.shared.learning.vocab import STORED, find_vocab, stored
from outdraft.kernels.decoder.entrance import Entrance, FirstState
from outdraft.models.families.shared.fields import Fields
from outdraft.models.families.shared.naming import Entry, layer_entries
from outdraft.models.files.foreign_heads import fill, tensors_of_net, under_names, write_directory
from outdraft.models.files.load import read_json
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.block import blocks_of
from outdraft.models.networks.native import NativeDecoder, norm_of, parts_of
from outdraft.models.networks.packable import weight_of
from outdraft.models.networks.port import TargetPort, facts_of
from outdraft.nn.context import AttentionContext
from outdraft.options.errors import ModelLoadError
from outdraft.weights.renamed import open_tensors

ARCHITECTURE = "LlamaForCausalLMEagle"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastFeatureConfig(BorrowedHeadConfig):
    """Sizes, and what its file brings."""

    what: ClassVar[str] = "an EAGLE-1 network"

    bias: bool = True  # of fc
    own_embedding: bool = False


class LastFeatureNet(BorrowedHeadNet):
    """The network; all rows flat. Norm and head are the target's, handed over: no parameters of this module."""

    def __init__(
        self,
        config: LastFeatureConfig,
        target: Decoder | TargetPort,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
        vocab: Tensor | None = None,
    ) -> None:
        super().__init__(config, target, dtype, device, vocab, bias=config.bias)
        self.config = config
        self.layers[0].attn_norm = nn.Identity()
        if config.own_embedding:  # the target's, in published files
            self.embedding = self.own_embedding(dtype, self.fc.weight.device, trains=False)

    def run(self, embeds: Tensor, f: Tensor, positions: Tensor, ctx: AttentionContext) -> Tensor:
        return self.through(embeds.to(f.dtype), f, positions, ctx)

    def logits(self, g: Tensor) -> Tensor:
        """The target's head alone: [N, D] -> [N, V]."""
        return self.head(g)

    def native_parts(self, target: NativeDecoder) -> NativeParts:
        entrance = Entrance(
            num_taps=1,
            tap_width=self.shape.hidden_size,
            tap_eps=target.config.norm_eps,
            tap_norms=norm_of(target.final_norm),
            join=weight_of(self.fc),
            origin=FirstState.ZERO,
        )
        layers = [parts_of(layer) for layer in blocks_of(self.layers)]
        return NativeParts(
            layers=layers, rope=self.rope, entrance=entrance, head=self.lm_head, embedding=self.embedding
        )


def entries_of(config: LastFeatureConfig) -> Iterable[Entry]:
    """Which of our parameters each published tensor is."""
    for name in ("fc.weight", *["fc.bias"] * config.bias):
        yield Entry(ours=name, theirs=(name,))
    if config.own_embedding:
        yield Entry(ours="embedding", theirs=("embed_tokens.weight",))
    for i in range(config.layers.num_layers):
        yield from layer_entries(f"layers.{i}", f"layers.{i}", config.layers, input_norm=i > 0)


def save_last_feature(net: LastFeatureNet, directory: Path, dtype: torch.dtype | None = None) -> None:
    """config.json and model.safetensors in EAGLE-1's layout. `dtype`: of the numbers; their own by default."""
    tensors = tensors_of_net(net, entries_of(net.config), dtype) | stored(net.vocab, net.shape.vocab_size)
    write_directory(directory, layers_told(net, ARCHITECTURE, dtype, bias=net.config.bias), tensors)


def load_last_feature(
    directory: Path, target: Decoder | TargetPort, dtype: torch.dtype | None = None
) -> LastFeatureNet:
    """The network in `directory` for this target, in the target's type unless `dtype` is given.

    Raises `ModelLoadError` for what is no such network or is damaged, `CapabilityError` for another target's.
    """
    facts = facts_of(target)
    raw = read_json(directory / "config.json")
    tensors = under_names(open_tensors(directory), lambda name: name.removeprefix("model."))
    if "fc.weight" not in tensors or "layers.0.post_attention_layernorm.weight" not in tensors:
        raise ModelLoadError(f"{directory} holds no EAGLE-1 network: it has no tensors fc.weight and layers.0")
    if ARCHITECTURE in str(raw.get("architectures")) and raw.get("model_type") not in LAYERS:
        raw["model_type"] = "llama"  # the class says what is computed, whatever model_type was copied
    layers = read_layers(raw, directory, LastFeatureConfig.what)
    told = Fields({"model_type": raw.get("model_type"), "bias": raw.get("bias")})
    config = LastFeatureConfig(
        layers=layers,
        tap=facts.num_layers,
        bias=told.get("bias", bool, "fc.bias" in tensors),
        own_embedding="embed_tokens.weight" in tensors,
    )
    config.require(facts)
    vocab = find_vocab(tensors, None, facts.vocab_size, directory)
    return fill(
        lambda device: LastFeatureNet(config, target, dtype or facts.dtype, device, None if device else vocab),
        entries_of(config),
        tensors,
        f"EAGLE-1 network in {directory}",
        beside=STORED,
    )
