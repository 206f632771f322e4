"""EAGLE's drafter: the shared one (`shared/features/drafter.py`) over EAGLE's network."""

from dataclasses import dataclass

from outdraft.drafters.eagle.net import load_eagle
from outdraft.drafters.shared.features.drafter import FeatureDrafter, draft_with
from outdraft.drafters.shared.features.options import FeatureOptions
from outdraft.models.networks.port import TargetPort
from outdraft.weights.hub import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class EagleOptions(FeatureOptions):
    """Which network, which shape. Raises `ConfigError` naming what is out of range."""

    model: str = "zoo:eagle"  # the network: a directory, a hub name, or "zoo:NAME"; it belongs to one target


def build(options: EagleOptions, port: TargetPort) -> FeatureDrafter:
    """Load the network for this target."""
    return draft_with(load_eagle(resolve(options.model), port), options, port)
