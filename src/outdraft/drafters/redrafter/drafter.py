"""ReDrafter's drafter: a beam of paths, each continued from the recurrent state of its own tokens.

Cheng et al., "Recurrent drafter", 2024, https://arxiv.org/abs/2403.09919. The paper keeps the best whole beams and then
merges what they begin with; here the beam grows as a tree, in which nothing comes twice.
"""

from collections.abc import Sequence as Seq

from torch import Tensor

from outdraft.core.sequence import Sequence
from outdraft.drafters.redrafter.net import load_redrafter
from outdraft.drafters.shared.heads.config import HeadOptions
from outdraft.drafters.shared.heads.drafter import HeadDrafter, embedded_paths, states_of
from outdraft.drafters.shared.networks.prepare import prepare
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.weights.hub import resolve


def build(options: HeadOptions, port: TargetPort) -> HeadDrafter:
    """Load the head. Raises `CapabilityError` for one of another target."""
    if options.model is None:
        raise ConfigError("redrafter needs the head of its target: model=DIR, made by `outdraft train redrafter`")
    facts = port.facts
    net = load_redrafter(resolve(options.model), facts.dtype, facts.device)
    net.config.require(facts.num_layers, facts.hidden_size, facts.vocab_size, whose="a ReDrafter head")
    net.projections.borrow(port)
    weights = prepare(net, port, options.quantization)

    def ask(states: Tensor, seqs: Seq[Sequence], paths: Seq[list[int]]) -> Tensor:
        """The recurrence over each path's tokens, from the beginning: a few small products."""
        return net.logits(net.states(states, embedded_paths(port, seqs, paths)))

    return HeadDrafter(options, net.config, ask, states_of(net.config, port), (weights,))
