"""Medusa's drafter: one look at the last state, and every head has its say.

Cai et al., "Medusa", 2024, https://arxiv.org/abs/2401.10774. A head does not know what the heads before it said, so a
path's probability is the product of its heads'; the tree keeps the most probable paths.
"""

from collections.abc import Sequence as Seq

from torch import Tensor

from outdraft.core.errors import ConfigError
from outdraft.core.sequence import Sequence
from outdraft.drafters.medusa.formats import FILES, load
from outdraft.drafters.shared.heads.config import HeadOptions
from outdraft.drafters.shared.heads.drafter import HeadDrafter, states_of
from outdraft.drafters.shared.networks.exact import make_exact
from outdraft.drafters.shared.networks.load_draft import module_weights
from outdraft.models.port import TargetPort
from outdraft.weights.hub import resolve


def build(options: HeadOptions, port: TargetPort) -> HeadDrafter:
    """Load the heads. Raises `CapabilityError` for those of another target."""
    if options.model is None:
        raise ConfigError("medusa needs the heads of its target: model=DIR, made by `outdraft train medusa`")
    net = load(resolve(options.model, also=FILES), port.facts, port.facts.dtype)
    make_exact(net)

    def ask(states: Tensor, seqs: Seq[Sequence], paths: Seq[list[int]]) -> Tensor:
        """Each text's head is asked once, however many paths there are."""
        first = {seq.id: row for row, seq in reversed(list(enumerate(seqs)))}
        rows = sorted(first.values())
        head = len(paths[0]) - 1
        said = net.logits(net.states(states[rows], head), head)
        return said[[rows.index(first[seq.id]) for seq in seqs]]

    return HeadDrafter(options, net.config, ask, states_of(net.config, port), (module_weights(net, native=False),))
