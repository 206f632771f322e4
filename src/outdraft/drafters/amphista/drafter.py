"""Amphista's drafter: the slots are made once a round, and each level of the tree asks one of them.

Li et al., "Amphista", 2024, https://arxiv.org/abs/2406.13170. A head sees what the others are about to say, not which
tokens were chosen, so a path's probability is the product of its heads'.
"""

from torch import Tensor

from outdraft.drafters.amphista.net import load_amphista
from outdraft.drafters.shared.heads.config import HeadOptions
from outdraft.drafters.shared.heads.drafter import HeadDrafter, states_of
from outdraft.drafters.shared.heads.independent import independent
from outdraft.drafters.shared.networks.prepare import prepare
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.weights.hub import resolve


def build(options: HeadOptions, port: TargetPort) -> HeadDrafter:
    """Load the network. Raises `CapabilityError` for one of another target."""
    if options.model is None:
        raise ConfigError("amphista needs the heads of its target: model=DIR, made by `outdraft train amphista`")
    facts = port.facts
    net = load_amphista(resolve(options.model), facts.dtype, facts.device)
    net.config.require(facts.num_layers, facts.hidden_size, facts.vocab_size, whose="Amphista heads")
    net.projections.borrow(port)
    weights = prepare(net, port, options.quantization)
    net.slots.exact = True
    count = net.config.num_heads

    def say(slots: Tensor, head: int) -> Tensor:
        return net.logits(slots.view(len(slots), count, -1)[:, head], head)

    states = states_of(net.config, port, net.stem, lambda g: net.slots(g).flatten(1))
    return HeadDrafter(options, net.config, independent(say), states, (weights,))
