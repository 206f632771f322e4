"""EAGLE-1's drafter: the shared one (`shared/features/drafter.py`) over a network on the target's last feature."""

from outdraft.drafters.shared.features.drafter import FeatureDrafter, chosen_model, draft_with
from outdraft.drafters.shared.features.last_feature import load_last_feature
from outdraft.drafters.shared.features.static_tree import TreeOptions
from outdraft.models.networks.port import TargetPort


def build(options: TreeOptions, port: TargetPort) -> FeatureDrafter:
    """Load the network for this target."""
    net = load_last_feature(chosen_model(options, "eagle1"), port)
    return draft_with(net, options, port, shape=options.shape)
