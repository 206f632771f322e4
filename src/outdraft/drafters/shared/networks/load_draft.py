"""Load the network of an independent draft model: the options that all drafters with a model of their own share.

Data in: a model's name, its dtype and rounding, and the door to the target; data out: a network ready to draft.
"""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from outdraft.codecs.text import TextCodec
from outdraft.codecs.vocabulary import find_difference
from outdraft.core.weights import Weights
from outdraft.drafters.shared.learning.vocab import CutHead
from outdraft.drafters.shared.networks.rounding import is_ours, rounding_of
from outdraft.models.files.load_codec import load_codec
from outdraft.models.networks.fitted import FittedNetwork
from outdraft.models.networks.network import Network
from outdraft.models.networks.port import TargetPort
from outdraft.models.target.open_network import load_network
from outdraft.models.target.tables import tables_of
from outdraft.nn.quant.config import QuantConfig
from outdraft.nn.quant.linear import QuantLinear
from outdraft.options.base import NetworkOptions
from outdraft.options.errors import CapabilityError
from outdraft.weights.hub import resolve

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions(NetworkOptions):
    """Which model. Raises `ConfigError` naming what is out of range."""

    # the draft model: a directory, a hub name, or "zoo:NAME" for a model that ships with outdraft; if none is given,
    # what lies in MODEL/draft
    model: str = "zoo:draft"
    # the number format of the draft model's weights, for example "bfloat16"; "auto" takes the target's
    dtype: str = "auto"


def load_draft(options: ModelOptions, port: TargetPort, *, exact: bool = True, same_vocab: bool = True) -> Network:
    """Read the weights. Raises `CapabilityError` if the ids must be the target's and are not.

    A vocabulary that was filled up to another number of rows is fitted to the target's.
    """
    network = load_network(
        resolve(options.model),
        dtype=port.facts.dtype if options.dtype == "auto" else options.dtype,
        device=str(port.facts.device),
        exact=exact,
        rounding=rounding_of(options.quantization),
        tables=tables_of(port),
    )
    if same_vocab and network.config.vocab_size != port.facts.vocab_size:
        _require_same_tokens(options.model, network.config.vocab_size, port)
        return FittedNetwork(network, port.facts.vocab_size)
    return network


def _require_same_tokens(model: str, size: int, port: TargetPort) -> None:
    """Raise `CapabilityError` unless two vocabularies of different sizes are one that was filled up differently."""
    refused = (
        f"draft model {model!r} has a vocabulary of {size}, the target of {port.facts.vocab_size}, and {{}}: choose a "
        "draft model that shares the target's tokenizer, or a drafter that translates between vocabularies (vocab_map, "
        "universal)"
    )
    target, draft = port.origin.codec, load_codec(resolve(model))
    if not isinstance(target, TextCodec) or draft is None:
        whose = "the draft model" if draft is None else "the target"
        raise CapabilityError(refused.format(f"{whose} has no tokenizer that shows whether their tokens are the same"))
    least = min(size, port.facts.vocab_size)
    if (other := find_difference(target, draft, least)) is not None:
        raise CapabilityError(refused.format(f"id {other} stands for another token in its tokenizer"))
    _log.info(
        "draft model %s has %d tokens and the target %d, of one tokenizer: ids from %d on are never guessed",
        model,
        size,
        port.facts.vocab_size,
        least,
    )


def weights_of(network: Network) -> Weights:
    """What "auto" came to: who computes the draft model, how its weights are rounded, and what a pass reads of them."""
    quant = network.config.quant
    return Weights(
        kernels=network.kernels,
        variant=network.config.variant,
        bits=8 * network.dtype.itemsize if quant is None else quant.common_bits,
        pass_bytes=network.pass_bytes,
        rounded_at_load=is_ours(quant),
    )


def module_weights(module: nn.Module, *, native: bool, grid: QuantConfig | None = None) -> Weights:
    """The same of a head that is not a whole network. `grid`: what its maps were rounded to when it was loaded."""
    numbers: list[Tensor] = list(module.parameters())
    numbers += [one.weight for one in module.modules() if isinstance(one, CutHead)]
    maps = [one for one in module.modules() if isinstance(one, QuantLinear)]
    numbers += [integers for one in maps for integers in (one.qweight, one.scales)]
    return Weights(
        kernels="native" if native else "pytorch",
        variant="" if grid is None else grid.variant,
        bits=8 * numbers[0].element_size() if grid is None else grid.bits,
        pass_bytes=sum(one.numel() * one.element_size() for one in numbers),
        rounded_at_load=grid is not None,
    )


def describe_network(network: Network) -> Mapping[str, Any]:
    """`weights_of` as plain data, for a run's record."""
    return asdict(weights_of(network))
