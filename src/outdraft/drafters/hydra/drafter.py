"""Hydra's drafter: one head for each token; a head also reads the tokens that were guessed before.

Ankner et al., "Hydra", 2024, https://arxiv.org/abs/2402.05109. What a head says depends on the path, so every path of a
tree is asked about by itself.
"""

from collections.abc import Sequence as Seq

from torch import Tensor

from outdraft.core.sequence import Sequence
from outdraft.drafters.hydra.formats import FILES, load
from outdraft.drafters.shared.heads.config import HeadOptions
from outdraft.drafters.shared.heads.drafter import HeadDrafter, embedded_paths, states_of
from outdraft.drafters.shared.networks.prepare import prepare
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.weights.hub import resolve


def build(options: HeadOptions, port: TargetPort) -> HeadDrafter:
    """Load the heads. Raises `CapabilityError` for those of another target."""
    if options.model is None:
        raise ConfigError("hydra needs the heads of its target: model=DIR, made by `outdraft train hydra`")
    net = load(resolve(options.model, also=FILES), port, port.facts.dtype)
    net.projections.borrow(port)
    weights = prepare(net, port, options.quantization)

    def ask(states: Tensor, seqs: Seq[Sequence], paths: Seq[list[int]]) -> Tensor:
        """The head behind each path, which reads the embeddings of all of it."""
        return net.logits(net.states(states, embedded_paths(port, seqs, paths)), len(paths[0]) - 1)

    return HeadDrafter(options, net.config, ask, states_of(net.config, port, net.stem), (weights,))
