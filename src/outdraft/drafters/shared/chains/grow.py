"""A chain for each sequence, by the quickest way that this network and this sequence allow.

A sequence's way does not depend on who else is in the batch, but for a recorded pass, which is for all or none; the
guesses are the same. Data in: sequences, depths, the network and when chains end; data out: one chain each.
"""

from collections.abc import Sequence as Seq

from outdraft.core.draft import Draft
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.chains.native import chooses_natively, native_chains
from outdraft.drafters.shared.chains.network import ChainNetwork
from outdraft.drafters.shared.chains.recorded import recorded_chains
from outdraft.drafters.shared.chains.stepped import stepped_chains
from outdraft.drafters.shared.choose import Sample, takes_plain_argmax
from outdraft.drafters.shared.limits import Cutoff
from outdraft.options.errors import CapabilityError


def grow_chains(
    seqs: Seq[Sequence], depths: Seq[int], network: ChainNetwork, cutoffs: Seq[Cutoff], *, sample: Sample
) -> list[Draft]:
    """A chain of at most `depths[i]` draft tokens for `seqs[i]`; depth 0 is node 0 alone and is never fed.

    If any of the `cutoffs` asks for confidences, every draft has them. Kernels know bare probabilities only:
    chains that end by calibrated ones are stepped, so that no token is drawn behind their end; and so are those that a
    judge of hidden states ends. Raises `CapabilityError` for such a judge where the network has no states.
    """
    asked = any(cutoff.is_asked for cutoff in cutoffs)
    judged = any(cutoff.judge is not None for cutoff in cutoffs)
    if judged and network.states is None:
        raise CapabilityError("a budget brings a judge of hidden states, and this drafter hands none over")
    if network.record is not None and not (asked or judged) and all(takes_plain_argmax(seq, sample) for seq in seqs):
        return recorded_chains(seqs, depths, network.record)
    if network.chain is None:
        return stepped_chains(seqs, depths, network, cutoffs, sample=sample)
    own = [
        i for i, seq in enumerate(seqs) if depths[i] > 0 and _knows_bare(cutoffs[i]) and chooses_natively(seq, sample)
    ]
    drafts: list[Draft] = []
    if len(own) < len(seqs):
        rest = [0 if i in own else depth for i, depth in enumerate(depths)]
        drafts = stepped_chains(seqs, rest, network, cutoffs, sample=sample)
    if own:
        made = native_chains(seqs, own, depths, network.chain, cutoffs if asked else None, sample=sample)
        if not drafts:
            return made
        for i, draft in zip(own, made, strict=True):
            drafts[i] = draft
    return drafts


def _knows_bare(cutoff: Cutoff) -> bool:
    """Whether the kernels know what the chain ends by."""
    return cutoff.calibration is None and cutoff.judge is None
