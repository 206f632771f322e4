"""EAGLE's drafter: the shared one (`shared/features/drafter.py`) over EAGLE's network, on the native kernels where they
run the target."""

from dataclasses import dataclass

from outdraft.drafters.eagle.net import load_eagle, pack_guesser
from outdraft.drafters.shared.features.drafter import FeatureDrafter, draft_with
from outdraft.drafters.shared.features.options import FeatureOptions
from outdraft.drafters.shared.features.pairs import Pairs
from outdraft.drafters.shared.networks.load_draft import module_weights
from outdraft.models.port import TargetPort
from outdraft.weights.hub import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class EagleOptions(FeatureOptions):
    """Which network, which shape. Raises `ConfigError` naming what is out of range."""

    model: str = "zoo:eagle"  # directory, hub name or "zoo:<name>"; it belongs to one target


def build(options: EagleOptions, port: TargetPort) -> FeatureDrafter:
    """Load the network for this target."""
    net = load_eagle(resolve(options.model), port)
    if port.layers.native is None:
        return draft_with(net, options, port)
    weights = module_weights(net, native=True)  # packing takes parameters out of the net
    native = pack_guesser(net, port.layers.native)
    return FeatureDrafter(options, Pairs(net, port, max_len=port.facts.max_len, native=native), (weights,))
