"""Load the network of an independent draft model: the options that all drafters with a model of their own share.

Data in: a model's name, its dtype and rounding, and the door to the target; data out: a network ready to draft.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outdraft.core.errors import CapabilityError
from outdraft.core.target import TargetPort
from outdraft.drafters.shared.rounding import Quantization, check_quantization, is_ours, rounding_of
from outdraft.models.load import load_network
from outdraft.models.network import Network
from outdraft.weights.hub import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Which model. Raises `ConfigError` naming what is out of range."""

    model: str = "zoo:draft"  # directory, hub name or "zoo:<name>"
    dtype: str = "auto"  # "auto": as the target
    quantization: Quantization = "auto"  # of its weights: none, int8, int4; "auto" where it was measured to pay

    def __post_init__(self) -> None:
        check_quantization(self.quantization)


def load_draft(options: ModelOptions, port: TargetPort, *, exact: bool = True, same_vocab: bool = True) -> Network:
    """Read the weights. Raises `CapabilityError` if the ids must be the target's and are not."""
    network = load_network(
        resolve(options.model),
        dtype=port.dtype if options.dtype == "auto" else options.dtype,
        device=str(port.device),
        exact=exact,
        rounding=rounding_of(options.quantization),
    )
    if same_vocab and network.config.vocab_size != port.vocab_size:
        raise CapabilityError(
            f"draft model {options.model!r} has a vocabulary of {network.config.vocab_size}, the target of "
            f"{port.vocab_size}: choose a draft model that shares the target's tokenizer, or a drafter that "
            "translates ('vocab_map', 'universal')"
        )
    return network


def describe_network(network: Network) -> Mapping[str, Any]:
    """What "auto" came to: who computes the draft model, how its weights are rounded, and what a pass reads of them."""
    return {
        "kernels": network.kernels, "variant": network.config.variant, "pass_bytes": network.pass_bytes,
        "rounded_at_load": is_ours(network.config.quant),
    }  # fmt: skip
