"""What is known of one arm: acceptance over all texts, how many nodes a guess has, and whether it was tried at all.

Data in: the rounds that it guessed in; data out: estimates that a plan is made of.
"""

from outdraft.control.shared.acceptance import Hazards

_TRIALS = (4, 2, 5)  # depths of the first rounds of an arm, from which its costs are learned
_SLOW = 1 / 24


class Record:
    """`memory`: rounds after which a round counts 1/e."""

    __slots__ = ("_node_share", "_node_shares", "hazards", "num_tried")

    def __init__(self, memory: float) -> None:
        self.hazards = Hazards(memory)
        self.num_tried = 0
        self._node_share = 1.0  # nodes offered for each token of depth asked for
        self._node_shares: dict[int, tuple[float, float]] = {}  # the same by depth, with the number of rounds

    @property
    def trial(self) -> int | None:
        """The depth of its next trial; None: it has had them."""
        return _TRIALS[self.num_tried] if self.num_tried < len(_TRIALS) else None

    def nodes(self, depth: int) -> float:
        """Draft nodes that a guess of this depth is likely to have: none where the drafter finds nothing to say."""
        known = self._node_shares.get(depth)
        return depth * (known[1] if known else self._node_share)

    def add(self, depth: int, num_nodes: int) -> None:
        """A round that asked for `depth` tokens and got `num_nodes` nodes."""
        share = num_nodes / depth
        self._node_share += _SLOW * (share - self._node_share)
        rounds, mean = self._node_shares.get(depth, (0.0, 0.0))
        rounds = min(rounds + 1, 1 / _SLOW)
        self._node_shares[depth] = (rounds, mean + (share - mean) / rounds)
