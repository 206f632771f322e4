"""Chains: the line of acceptable nodes below the pending token, and what p and q say of its tokens."""

from outdraft.core.errors import CapabilityError
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
    tokens = [case.tree.tokens[node] for node in nodes[1:]]
    p = case.p[nodes[:-1], tokens].tolist()
    return p, [1.0] * len(tokens) if case.q is None else case.q[nodes[:-1], tokens].tolist()


def ratio(p: float, q: float) -> float:
    """min(1, p / q): 0 for a token that p forbids, and for one that q says was never drawn."""
    return min(1.0, p / q) if q > 0 else 0.0
