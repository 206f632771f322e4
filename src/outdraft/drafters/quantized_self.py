"""QuantSpec: the target drafts with its own weights on 4 or 8 bits, over its own keys and values, exact or on 4 bits.

    kv_bits 0   pending -> [rounded layers over the text's exact rows] -> t1 -> t2 ...
    kv_bits 4   pending -> [rounded layers over the upper halves of old rows, and recent rows] -> t1 -> t2 ...
    verify      pending, t1, t2 ... through the weights as they are, over the target's own rows

    byte of a channel    [ upper half | lower half ]      row = bytes x scale, as in a cache of bytes
    view                 [ upper halves ........ | buffer to 2 buffer - 1 recent rows, whole | guess ]

Where the target's own cache holds bytes these are the same bytes: the target verifies with both halves, the draft reads
one. Tiwari et al., "QuantSpec: self-speculative decoding with hierarchical quantized KV cache", 2025,
https://arxiv.org/abs/2502.10424; docs/methods/quantized_self.md says what differs. Data in: sequences; data out:
chains with the distributions they were drawn from (none at temperature 0).
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from outdraft.cache.config import CacheConfig
from outdraft.core.cache import PAGE
from outdraft.core.draft import Draft
from outdraft.core.drafter import Traits
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.draw_options import DrawOptions
from outdraft.drafters.shared.networks.draft_network import loaded_network
from outdraft.drafters.shared.networks.load_draft import weights_of
from outdraft.drafters.shared.own_layers.own_chain import grow_own_chains
from outdraft.drafters.shared.own_layers.sparse_view import SparseViews
from outdraft.drafters.shared.plain import PlainDrafter
from outdraft.models.networks.config import ModelConfig
from outdraft.models.networks.network import Network
from outdraft.models.networks.port import TargetPort
from outdraft.models.target.open_network import load_network
from outdraft.nn.quant.config import QuantConfig
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.weights.hub import resolve


def upper_half(rows: Tensor) -> Tensor:
    """Bytes with the middle of what their lower halves could be in their place: int8 -> int8, at most 8 away."""
    return torch.bitwise_and(rows, -16) | 8


class UpperHalves:
    """One view for each sequence. `num_rounded`: rows that have lost their lower halves so far, of all sequences."""

    def __init__(self, port: TargetPort, buffer: int) -> None:
        self.views = SparseViews(port, CacheConfig(dtype="int8"))
        self.num_rounded = 0
        self._buffer = buffer  # a multiple of PAGE
        self._rounded: dict[int, int] = {}  # sequence -> its rows without a lower half

    def add(self, seq: Sequence) -> None:
        self.views.add(seq)
        self._rounded[seq.id] = 0

    def free(self, seq: Sequence) -> None:
        self.views.free(seq)
        self._rounded.pop(seq.id, None)

    def follow(self, seq: Sequence) -> None:
        """Take in what the text has gained, and round what has become old."""
        self.views.follow(seq)
        first = self._rounded[seq.id]
        groups = (seq.num_cached - first) // self._buffer - 1
        if groups < 1:
            return
        last = first + groups * self._buffer
        memory = self.views.rows.memory(seq.id)
        pages = memory.table[first // PAGE : last // PAGE].long()
        for plane in (memory.keys, memory.values):
            plane[:, pages] = upper_half(plane[:, pages])
        self._rounded[seq.id] = last
        self.num_rounded += last - first


_GROUP = 32  # weights that share a scale


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedSelfOptions(DrawOptions):
    """How far weights and rows are rounded. Raises `ConfigError` naming what is out of range."""

    bits: int = 4  # to how many bits the target's weights are rounded for drafting, in groups of 32; the head keeps 8
    # the directory from which the target's weights are read again; when empty, the one that the target came from
    weights: str = ""
    # 4 drafts over a copy of the text's keys and values whose old rows have 4 bits; 0 drafts over the target's own
    kv_bits: int = 0
    buffer: int = 128  # with kv_bits=4: how many recent rows at least are not rounded; at most twice as many

    def __post_init__(self) -> None:
        DrawOptions.__post_init__(self)
        if self.bits not in (4, 8):
            raise ConfigError(f"bits={self.bits}: choose 4 or 8")
        if self.kv_bits not in (0, 4):
            raise ConfigError(f"kv_bits={self.kv_bits}: choose 4, or 0 for the target's own rows")
        if self.buffer < PAGE or self.buffer % PAGE:
            raise ConfigError(f"buffer={self.buffer}: must be a multiple of {PAGE}, above 0")


class QuantizedSelfDrafter(PlainDrafter):
    """Holds the rounded weights beside the target's, and with `kv_bits` a rounded view of each text."""

    def __init__(self, options: QuantizedSelfOptions, port: TargetPort, network: Network) -> None:
        self.network = network
        self.traits = Traits(weights=(weights_of(network),))
        self.halves = UpperHalves(port, options.buffer) if options.kv_bits else None
        self._options = options
        self._port = port
        self._own = loaded_network(network)

    def begin(self, seqs: Seq[Sequence]) -> None:
        """An empty view for each, if there are views: the target has read the prompt."""
        for seq in seqs:
            if self.halves is not None:
                self.halves.add(seq)

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A chain by the rounded weights."""
        if self.halves is None:
            return grow_own_chains(seqs, budgets, self._own, self._port.rows.tentative, self._options)
        for seq, budget in zip(seqs, budgets, strict=True):
            if budget.depth > 0:
                self.halves.follow(seq)
        return grow_own_chains(seqs, budgets, self._own, self.halves.views.tentative, self._options)

    def end(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            if self.halves is not None:
                self.halves.free(seq)


def build(options: QuantizedSelfOptions, port: TargetPort) -> QuantizedSelfDrafter:
    """Read the target's weights again and round them."""
    where: Path | None = resolve(options.weights) if options.weights else port.origin.source
    if where is None:
        raise CapabilityError(
            "drafter 'quantized_self' reads the target's weights again, and this target was not loaded from a "
            "directory: name one with weights="
        )

    def rounding(config: ModelConfig, native: bool) -> QuantConfig | None:
        if config.variant:
            raise CapabilityError(
                f"drafter 'quantized_self' rounds the target's weights, and {where.name} holds rounded ones "
                f"({config.variant}): name the original's directory with weights="
            )
        return _grid(config, options.bits)

    network = load_network(
        where, dtype=port.facts.dtype, device=str(port.facts.device), exact=port.facts.exact, rounding=rounding
    )
    config = network.config
    if (config.hidden_size, config.num_layers, config.vocab_size) != (
        port.facts.hidden_size,
        port.facts.num_layers,
        port.facts.vocab_size,
    ):
        raise CapabilityError(
            f"weights in {where.name} are another model's ({config.num_layers} layers of width {config.hidden_size}, "
            f"the target has {port.facts.num_layers} of {port.facts.hidden_size}): name the target's own"
        )
    return QuantizedSelfDrafter(options, port, network)


def _grid(config: ModelConfig, bits: int) -> QuantConfig:
    """Groups of 32 where they divide every width, else one scale an output; the head keeps 8 bits."""
    widths = (config.hidden_size, config.intermediate_size, config.num_heads * config.head_dim)
    group = _GROUP if all(width % _GROUP == 0 for width in widths) else 0
    return QuantConfig(bits=bits, group_size=group, keep=(), layer_bits=(("lm_head", 8),))


METHOD = DrafterMethod(
    name="quantized_self",
    summary="the target's own weights on 4 or 8 bits, over its own cache or a view of it on 4 bits",
    build=build,
    options=QuantizedSelfOptions,
    paper=arxiv("2502.10424", "QuantSpec: self-speculative decoding with hierarchical quantized KV cache"),
    describe=lambda drafter: {
        "kernels": drafter.network.kernels,
        "variant": drafter.network.config.variant,
        "pass_bytes": drafter.network.pass_bytes,
    },
)
