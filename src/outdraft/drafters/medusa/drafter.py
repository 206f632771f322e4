"""Medusa's drafter: every head reads the last state once and guesses one of the next tokens.

Cai et al., "Medusa", 2024, https://arxiv.org/abs/2401.10774. A head does not know what the heads before it said, so a
path's probability is the product of its heads'; the tree keeps the most probable paths.
"""

from torch import Tensor

from outdraft.drafters.medusa.formats import FILES, load
from outdraft.drafters.shared.heads.config import HeadOptions
from outdraft.drafters.shared.heads.drafter import HeadDrafter, states_of
from outdraft.drafters.shared.heads.independent import independent
from outdraft.drafters.shared.heads.joint import require_taught
from outdraft.drafters.shared.networks.prepare import prepare
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.weights.hub import resolve


def build(options: HeadOptions, port: TargetPort) -> HeadDrafter:
    """Load the heads. Raises `CapabilityError` for those of another target."""
    if options.model is None:
        raise ConfigError("medusa needs the heads of its target: model=DIR, made by `outdraft train medusa`")
    place = resolve(options.model, also=FILES)
    require_taught(place, port)
    net = load(place, port, port.facts.dtype)
    net.projections.borrow(port)
    weights = prepare(net, port, options.quantization)

    def say(states: Tensor, head: int) -> Tensor:
        return net.logits(net.states(states, head), head)

    return HeadDrafter(options, net.config, independent(say), states_of(net.config, port), (weights,))
