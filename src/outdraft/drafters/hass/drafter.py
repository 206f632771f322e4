"""HASS' drafter: the shared one (`shared/features/drafter.py`) over a network on the target's last feature, with
EAGLE-2's dynamic tree."""

from outdraft.drafters.shared.features.drafter import FeatureDrafter, chosen_model, draft_with
from outdraft.drafters.shared.features.last_feature import load_last_feature
from outdraft.drafters.shared.features.options import FeatureOptions
from outdraft.models.networks.port import TargetPort


def build(options: FeatureOptions, port: TargetPort) -> FeatureDrafter:
    """Load the network for this target."""
    return draft_with(load_last_feature(chosen_model(options, "hass"), port), options, port)
