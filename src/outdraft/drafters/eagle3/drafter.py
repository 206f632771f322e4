"""EAGLE-3's drafter: the shared one (`shared/features/drafter.py`) over a network in the published layout."""

from outdraft.drafters.eagle3.files import load_eagle3
from outdraft.drafters.eagle3.net import lent_by
from outdraft.drafters.shared.features.drafter import FeatureDrafter, chosen_model, draft_with
from outdraft.drafters.shared.features.options import FeatureOptions
from outdraft.models.networks.port import TargetPort


def build(options: FeatureOptions, port: TargetPort) -> FeatureDrafter:
    """Load the network for this target."""
    return draft_with(load_eagle3(chosen_model(options, "eagle3"), port.facts, lent=lent_by(port)), options, port)
