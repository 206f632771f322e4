"""Chains: the line of acceptable nodes below the pending token, and what p and q say of its tokens."""

import torch
from torch import Tensor

from outdraft.options.errors import CapabilityError
from outdraft.verify.shared.case import Case


def chain_nodes(case: Case, rule: str) -> list[int]:
    """Node indices from the root down. Raises `CapabilityError` if the draft branches."""
    nodes = [0]
    while below := case.tree.children[nodes[-1]]:
        if len(below) > 1:
            raise CapabilityError(
                f"verifier {rule!r} judges chains, but in the draft of sequence {case.seq.id} node {nodes[-1]} has "
                f"{len(below)} children: use verifier 'traversal' (or 'auto') for trees, or a drafter of width 1"
            )
        nodes.append(below[0])
    return nodes


def token_masses(case: Case, nodes: list[int]) -> tuple[list[float], list[float]]:
    """p and q of each drafted token given its parent: two gathers for the whole chain. One-hot q is 1."""
    width, tokens = case.p.shape[-1], [case.tree.tokens[node] for node in nodes[1:]]
    if tokens and not 0 <= min(tokens) <= max(tokens) < width:
        raise CapabilityError(
            f"the draft of sequence {case.seq.id} guesses {tokens}: the target has {width} ids, from 0 on"
        )
    places = [parent * width + token for parent, token in zip(nodes, tokens, strict=False)]
    at = torch.tensor(places, dtype=torch.long, device=case.p.device)
    p: list[float] = case.p.take(at).tolist()
    return p, [1.0] * len(p) if case.q is None else case.q.take(at).tolist()


def rows_of(distribution: Tensor, nodes: list[int]) -> Tensor:
    """Rows [n, V] of nodes that ascend, at least one; a view where they stand side by side, as a whole chain's do."""
    if nodes[-1] - nodes[0] == len(nodes) - 1:
        return distribution[nodes[0] : nodes[-1] + 1]
    return distribution[nodes]
