"""The drafter of blockwise parallel decoding: what the layers say on the row that was accepted last.

Stern, Shazeer and Uszkoreit, "Blockwise parallel decoding", 2018, https://arxiv.org/abs/1811.03115. In the paper a pass
that verifies a block also predicts the next one. Here too: the layers read the state that the verifying pass left at
the last accepted row, so that a text takes one pass to read its prompt, and one a round.
"""

from torch import Tensor

from outdraft.drafters.blockwise.net import load_blockwise
from outdraft.drafters.shared.heads.config import HeadOptions
from outdraft.drafters.shared.heads.drafter import HeadDrafter, states_of
from outdraft.drafters.shared.heads.independent import independent
from outdraft.drafters.shared.networks.prepare import prepare
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.weights.hub import resolve


def build(options: HeadOptions, port: TargetPort) -> HeadDrafter:
    """Load the layers. Raises `CapabilityError` for those of another target."""
    if options.model is None:
        raise ConfigError("blockwise needs the layers of its target: model=DIR, made by `outdraft train blockwise`")
    facts = port.facts
    net = load_blockwise(resolve(options.model), facts.dtype, facts.device)
    net.config.require(facts.num_layers, facts.hidden_size, facts.vocab_size, whose="blockwise layers")
    net.projections.borrow(port)
    weights = prepare(net, port, options.quantization)

    def say(states: Tensor, head: int) -> Tensor:
        return net.logits(net.states(states, head), head)

    return HeadDrafter(options, net.config, independent(say), states_of(net.config, port), (weights,))
