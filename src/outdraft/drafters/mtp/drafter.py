"""MTP's drafter: the shared one (`shared/features/drafter.py`) over one layer that is applied again and again."""

from outdraft.drafters.mtp.net import load_mtp
from outdraft.drafters.shared.features.drafter import FeatureDrafter, chosen_model, draft_with
from outdraft.drafters.shared.features.options import FeatureOptions
from outdraft.models.networks.port import TargetPort


def build(options: FeatureOptions, port: TargetPort) -> FeatureDrafter:
    """Load the layer for this target."""
    return draft_with(load_mtp(chosen_model(options, "mtp"), port), options, port)
