"""The network: a decoder layer between norms, over the target's last feature and the next token's embedding.

DeepSeek-AI, 2024, https://arxiv.org/abs/2412.19437, with the names of Qwen3-Next's checkpoints (`mtp.*`).

    embedding of x_{i+1} -- norm --+
                                   cat -- fc --> layers --> g_i -- norm --+-- the target's head --> x_{i+2}
    f_i, behind the target's       |                                      |
         final norm -------- norm -+                                      +--> stands in for f_{i+1}

Embedding and head are the target's. What stands in for the next feature is normed, as the true one is.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from outdraft.drafters.mtp.by_name import BESIDE, COPIES, QWEN, SPECULATORS, from_speculators
from outdraft.drafters.shared.features.borrowed_head import (
    COUNTS,
    BorrowedHeadConfig,
    BorrowedHeadNet,
    layers_told,
    read_layers,
)
from outdraft.drafters.shared.features.network import NativeParts
from outdraft.drafters.shared.learning.vocab import STORED, find_vocab, stored
from outdraft.kernels.decoder.entrance import Entrance, FirstState
from outdraft.models.families.shared.naming import Entry, layer_entries
from outdraft.models.files.foreign_heads import (
    check_beside_layers,
    fill,
    tell_count,
    tensors_of_net,
    under_names,
    write_directory,
)
from outdraft.models.files.load import read_json
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.block import blocks_of
from outdraft.models.networks.native import NativeDecoder, norm_of, parts_of
from outdraft.models.networks.packable import weight_of
from outdraft.models.networks.port import TargetPort, facts_of
from outdraft.nn.context import AttentionContext
from outdraft.nn.norm import RMSNorm
from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import shown
from outdraft.weights.renamed import open_tensors
from outdraft.weights.source import TensorSource

ARCHITECTURE = "OutdraftMTP"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MtpConfig(BorrowedHeadConfig):
    """The sizes of an MTP layer, whose head is the target's."""

    what: ClassVar[str] = "an MTP layer"


class MtpNet(BorrowedHeadNet):
    """The network; all rows flat. The target's norm and head are handed over: no parameters of this module."""

    def __init__(
        self,
        config: MtpConfig,
        target: Decoder | TargetPort,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
        vocab: Tensor | None = None,
    ) -> None:
        super().__init__(config, target, dtype, device, vocab, bias=False)
        layers, device = config.layers, self.fc.weight.device

        def norm() -> RMSNorm:
            return RMSNorm(layers.hidden_size, layers.norm_eps, dtype, device)

        self.config = config
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = norm(), norm(), norm()

    def run(self, embeds: Tensor, f: Tensor, positions: Tensor, ctx: AttentionContext) -> Tensor:
        """Embeddings [N, D] of the next tokens and features [N, D] at `positions` [N] -> g [N, D]."""
        embeds = self.pre_fc_norm_embedding(embeds.to(f.dtype))
        return self.through(embeds, self.pre_fc_norm_hidden(f), positions, ctx)

    def carry(self, g: Tensor) -> Tensor:
        """The output behind the norm stands in for the next feature."""
        return self.norm(g)  # type: ignore[no-any-return]

    def logits(self, g: Tensor) -> Tensor:
        """Own norm, the target's head: [N, D] -> [N, V]."""
        return self.head(self.norm(g))

    def native_parts(self, target: NativeDecoder) -> NativeParts:
        entrance = Entrance(
            num_taps=1,
            tap_width=self.shape.hidden_size,
            tap_eps=target.config.norm_eps,
            tap_norms=norm_of(target.final_norm),
            token_norm=norm_of(self.pre_fc_norm_embedding),
            feature_norm=norm_of(self.pre_fc_norm_hidden),
            join=weight_of(self.fc),
            origin=FirstState.ZERO,
            norms_carried=True,
        )
        layers = [parts_of(layer) for layer in blocks_of(self.layers)]
        return NativeParts(layers=layers, rope=self.rope, entrance=entrance, norm=self.norm, head=self.lm_head)


def entries_of(config: MtpConfig) -> Iterable[Entry]:
    """Which of our parameters each published tensor is."""
    for name in ("pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight", "fc.weight", "norm.weight"):
        yield Entry(ours=name, theirs=(QWEN + name,))
    for i in range(config.layers.num_layers):
        yield from layer_entries(f"layers.{i}", f"{QWEN}layers.{i}", config.layers)


def save_mtp(net: MtpNet, directory: Path, dtype: torch.dtype | None = None) -> None:
    """config.json and model.safetensors. `dtype`: of the numbers; their own by default."""
    tensors = tensors_of_net(net, entries_of(net.config), dtype) | stored(net.vocab, net.shape.vocab_size)
    write_directory(directory, layers_told(net, ARCHITECTURE, dtype), tensors)


def _tensors(source: TensorSource) -> TensorSource:
    """By Qwen3-Next's names, without the rest of a whole model; one line where a layer by itself has its target's
    tables beside it."""
    inside = any(name.startswith(("model.", "language_model.")) for name in source)
    copies = [name for name in source if name.startswith(COPIES) and not inside]
    if copies:
        _log.warning("%s: %s: the target's own are used", source.origin.name, ", ".join(copies))

    def ours(name: str) -> str | None:
        if name.startswith(SPECULATORS):
            return from_speculators(name)
        is_own = name.startswith((QWEN, "mtp_layers.")) or name in STORED
        return name if is_own or not (inside or name in copies) else None

    return under_names(source, ours)


def load_mtp(directory: Path, target: Decoder | TargetPort, dtype: torch.dtype | None = None) -> MtpNet:
    """The network in `directory`, or in a whole model there, for this target; in the target's type by default.

    Raises `ModelLoadError` for what holds none or is damaged, `CapabilityError` for another target's.
    """
    facts = facts_of(target)
    raw = whole = read_json(directory / "config.json")
    tensors = _tensors(open_tensors(directory))
    if isinstance(told := raw.get("transformer_layer_config"), dict):
        check_beside_layers(raw, BESIDE)
        raw = told
    if f"{QWEN}fc.weight" not in tensors:
        raise ModelLoadError(f"{directory} holds no MTP layer: it has no tensor {QWEN}fc.weight")
    layers = read_layers(raw, directory, MtpConfig.what)
    numbered = {name.split(".")[2] for name in tensors if name.startswith(f"{QWEN}layers.")}
    for key in (key for key in COUNTS if whole.get(key) is not None):
        if len(numbered) > 1:
            raise ModelLoadError(
                f"{directory}: {key}={shown(whole[key])} of config.json, and its files hold {len(numbered)} MTP "
                "layers: one for each step, which is not supported; remove all but the first, which then drafts "
                "every step"
            )
        tell_count(directory, whole, key, len(numbered))
    config = MtpConfig(layers=replace(layers, num_layers=max(1, len(numbered))), tap=facts.num_layers)
    config.require(facts)
    vocab = find_vocab(tensors, None, facts.vocab_size, directory)
    return fill(
        lambda device: MtpNet(config, target, dtype or facts.dtype, device, None if device else vocab),
        entries_of(config),
        tensors,
        f"MTP layer in {directory}",
        beside=STORED,
    )
