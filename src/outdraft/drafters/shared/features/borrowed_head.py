"""A few decoder layers between the target's last feature and the target's head: what EAGLE-1 and MTP have in common.

    embedding of x_{i+1} --+
                           +-- joined by fc --> layers --> g_i -- the target's head --> x_{i+2}
    f_i, behind the target's final norm --+

Li et al., "EAGLE", 2024, https://arxiv.org/abs/2401.15077; DeepSeek-AI, "DeepSeek-V3 technical report", 2024,
https://arxiv.org/abs/2412.19437. Width, vocabulary, final norm and head are the target's, so such a network belongs to
one target. Here: sizes, the parts that both build on, and the config.json that both read and write.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from outdraft.drafters.shared.features.network import FeatureNet
from outdraft.drafters.shared.learning.vocab import CutHead
from outdraft.models.families.catalogue import ARCHITECTURES
from outdraft.models.families.shared.fields import names_windows
from outdraft.models.files.load import find_architecture
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.block import Block
from outdraft.models.networks.config import ModelConfig
from outdraft.models.networks.port import TargetFacts, TargetPort, facts_of, lent_parts
from outdraft.nn.context import AttentionContext
from outdraft.nn.linear import Linear
from outdraft.nn.rope import Rope
from outdraft.options.errors import CapabilityError, ModelLoadError

COUNTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers")  # of a target's MTP layers
_BESIDE = ("bias", *COUNTS, "eagle_config", "num_speculative_steps")
LAYERS = ("llama", "qwen2", "qwen3")  # whose layers such a network may have


@dataclass(frozen=True, slots=True, kw_only=True)
class BorrowedHeadConfig:
    """The sizes of a network that reads the target's last states and uses its head."""

    what: ClassVar[str]  # the network, in words, for errors

    layers: ModelConfig  # its own; width and vocabulary are the target's
    tap: int  # the target's number of layers

    def require(self, known: TargetFacts) -> None:
        """Raise `CapabilityError` unless it can draft for this target."""
        if (self.layers.hidden_size, self.layers.vocab_size) != (known.hidden_size, known.vocab_size):
            raise CapabilityError(
                f"{self.what} of width {self.layers.hidden_size} and vocabulary {self.layers.vocab_size} cannot draft "
                f"for a target of {known.hidden_size} and {known.vocab_size}: it belongs to its own target"
            )


class BorrowedHeadNet(FeatureNet):
    """The parts; all rows flat. The target's norm and head are handed over: no parameters of this module.

    vocab [V']: the target's ids of the draft's tokens, whose rows of the target's head it reads; None: all of them.
    """

    def __init__(
        self,
        config: BorrowedHeadConfig,
        target: Decoder | TargetPort,
        dtype: torch.dtype,
        device: torch.device | None,
        vocab: Tensor | None,
        *,
        bias: bool,
    ) -> None:
        facts = facts_of(target)
        config.require(facts)
        device, layers = device or facts.device, config.layers
        super().__init__(layers, (config.tap,), vocab if vocab is None else vocab.to(device))
        self.fc = Linear(2 * layers.hidden_size, layers.hidden_size, bias, dtype, device)
        self.layers = nn.ModuleList(Block(layers, i, dtype, device) for i in range(layers.num_layers))
        assert layers.rope is not None
        self.rope = Rope(layers.rope)
        parts = lent_parts(target)
        self._target_norm, self._target_head = parts.norm, parts.head
        self.lm_head: Linear | None = None if vocab is None else CutHead(target, vocab, dtype, device)

    def fuse(self, taps: Seq[Tensor]) -> Tensor:
        """The target's last states [N, D], normed as its head reads them."""
        return self._target_norm(taps[0]).to(self.fc.dtype)

    def head(self, normed: Tensor) -> Tensor:
        """The target's head, or its rows of the draft's tokens: [N, D] -> [N, V] or [N, V']."""
        return self._target_head(normed) if self.lm_head is None else self.lm_head(normed)

    def through(self, embeds: Tensor, f: Tensor, positions: Tensor, ctx: AttentionContext) -> Tensor:
        """Embeddings and features [N, D], as the network wants them, joined and led through the layers -> g [N, D]."""
        g = self.fc(torch.cat((embeds, f), -1))
        rotation = self.rope.at(positions, f.dtype)
        for layer in self.layers:
            g = layer(g, rotation, ctx, self.exact)[0]
        return g  # type: ignore[no-any-return]


def read_layers(raw: dict[str, object], directory: Path, what: str) -> ModelConfig:
    """The decoder layers that a config.json describes, whose head is not theirs. `what`: the network, in words.

    Raises `ModelLoadError` for layers of an architecture that is not supported, and for sliding windows.
    """
    kind = find_architecture(raw)
    if kind.model_type not in LAYERS:
        raise ModelLoadError(f"{directory}: layers of {kind.model_type!r} are not supported (supported: {LAYERS})")
    layers = kind.read(raw, beside=_BESIDE)
    if any(window is not None for window in layers.windows) or names_windows(raw.get("layer_types")):
        raise ModelLoadError(f"{directory}: {what} with sliding windows is not supported")
    return replace(layers, tie_embeddings=False)


def layers_told(net: BorrowedHeadNet, architecture: str, dtype: torch.dtype | None, **more: Any) -> dict[str, Any]:
    """The config.json of a network with these layers. `architecture`: its class; `dtype`: of the stored numbers, the
    network's own by default. more: other keys of its layout.
    """
    layers, dtype = net.shape, dtype or net.fc.weight.dtype
    kind = ARCHITECTURES[layers.architecture]
    return {
        "architectures": [architecture],
        "model_type": kind.model_type,
        **kind.write(layers),
        **more,
        "torch_dtype": str(dtype).removeprefix("torch."),
    }
