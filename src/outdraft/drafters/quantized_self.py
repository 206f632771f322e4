"""The target drafts for itself with its own weights on 4 or 8 bits, over the exact keys and values of its own cache.

    draft    pending -> [rounded layers over the text's exact rows] -> t1 -> t2 ...
    verify   pending, t1, t2 ... through the weights as they are, which write their rows over the guess's

After Tiwari et al., "QuantSpec: self-speculative decoding with hierarchical quantized KV cache", 2025,
https://arxiv.org/abs/2502.10424, whose draft rounds weights and keys; here the keys stay whole, because both share one
cache. Data in: sequences; data out: chains with the laws they were drawn from (none at temperature 0).
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outdraft.core.draft import Draft
from outdraft.core.drafter import Seen
from outdraft.core.errors import CapabilityError, ConfigError
from outdraft.core.policy import Budget
from outdraft.core.registry import Method, Paper
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs, TargetPort
from outdraft.drafters.shared.draft_network import loaded_network
from outdraft.drafters.shared.own_chain import OwnChainOptions, grow_own_chains
from outdraft.models.base import Decoder
from outdraft.models.config import ModelConfig
from outdraft.models.load import load_network
from outdraft.models.network import Network
from outdraft.nn.quant.config import QuantConfig
from outdraft.weights.hub import resolve

_GROUP = 32  # weights that share a scale


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedSelfOptions(OwnChainOptions):
    """How far the weights are rounded. Raises `ConfigError` naming what is out of range."""

    bits: int = 4  # 4 or 8 a weight, in groups of 32; a head is never on fewer than 8
    weights: str = ""  # where the target's weights are read again; empty: where the target came from

    def __post_init__(self) -> None:
        OwnChainOptions.__post_init__(self)
        if self.bits not in (4, 8):
            raise ConfigError(f"bits={self.bits}: choose 4 or 8")


class QuantizedSelfDrafter:
    """Holds the rounded weights beside the target's; no state between rounds."""

    needs = Needs()

    def __init__(self, options: QuantizedSelfOptions, port: TargetPort, network: Network) -> None:
        self.network = network
        self._options = options
        self._port = port
        self._own = loaded_network(network)

    def begin(self, seqs: Seq[Sequence]) -> None:
        """Nothing to prepare: the target has read the prompt."""

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A chain by the rounded weights."""
        return grow_own_chains(seqs, budgets, self._own, self._port.tentative, self._options)

    def observe(self, seen: Seq[Seen]) -> None:
        """Nothing to learn."""

    def end(self, seqs: Seq[Sequence]) -> None:
        """Nothing to drop."""


def build(options: QuantizedSelfOptions, port: TargetPort) -> QuantizedSelfDrafter:
    """Read the target's weights again and round them."""
    where: Path | None = resolve(options.weights) if options.weights else port.source
    if where is None:
        raise CapabilityError(
            "drafter 'quantized_self' reads the target's weights again, and this target was not loaded from a "
            "directory: name one with weights="
        )

    def rounding(decoder: Decoder) -> QuantConfig | None:
        if decoder.config.variant:
            raise CapabilityError(
                f"drafter 'quantized_self' rounds the target's weights, and {where.name} holds rounded ones "
                f"({decoder.config.variant}): name the original's directory with weights="
            )
        return _grid(decoder.config, options.bits)

    network = load_network(
        where, dtype=port.dtype, device=str(port.device), exact=port.record is None, rounding=rounding
    )
    config = network.config
    if (config.hidden_size, config.num_layers, config.vocab_size) != (
        port.hidden_size, port.num_layers, port.vocab_size
    ):  # fmt: skip
        raise CapabilityError(
            f"weights in {where.name} are another model's ({config.num_layers} layers of width {config.hidden_size}, "
            f"the target has {port.num_layers} of {port.hidden_size}): name the target's own"
        )
    return QuantizedSelfDrafter(options, port, network)


def _grid(config: ModelConfig, bits: int) -> QuantConfig:
    """Groups of 32 where they divide every width, else one scale an output; the head keeps 8 bits."""
    widths = (config.hidden_size, config.intermediate_size, config.num_heads * config.head_dim)
    group = _GROUP if all(width % _GROUP == 0 for width in widths) else 0
    return QuantConfig(bits=bits, group_size=group, keep=(), layer_bits=(("lm_head", 8),))


def describe(drafter: QuantizedSelfDrafter) -> Mapping[str, Any]:
    """Who computes it, how it is rounded, and what a pass reads of it."""
    network = drafter.network
    return {"kernels": network.kernels, "variant": network.config.variant, "pass_bytes": network.pass_bytes}


METHOD = Method(
    name="quantized_self",
    kind="drafter",
    summary="the target's own weights on 4 or 8 bits, over its own cache",
    build=build,
    options=QuantizedSelfOptions,
    paper=Paper(
        title="QuantSpec: self-speculative decoding with hierarchical quantized KV cache",
        year=2025,
        link="https://arxiv.org/abs/2502.10424",
    ),
    describe=describe,
)
