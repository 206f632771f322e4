"""What `auto` knows: of an arm over all texts, and of one text with each arm.

    Record          acceptance over all greedy texts and over all drawn ones, nodes of a guess, trials; kept for the
                    next engine of this model on this machine
    SequenceRecord  its acceptance with each arm, what is planned for it, and what watched arms have said

Data in: rounds, and perhaps what another process kept of them; data out: estimates that a plan is made of.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any

from outdraft.control.shared.acceptance import Hazards, TextOutlook
from outdraft.control.shared.costs import PLAIN, ArmDepth
from outdraft.control.shared.curve import read_number
from outdraft.core.draft import HostTree
from outdraft.core.sequence import Sequence

_SLOW = 1 / 24
_MOST_NODES = 4096.0  # for each token of depth: more is no record of ours


class ArmRecord:
    """`memory`: rounds after which a round counts 1/e."""

    __slots__ = ("_node_share", "_node_shares", "hazards", "num_tried")

    def __init__(self, memory: float) -> None:
        greedy, drawn = Hazards(memory), Hazards(memory)
        greedy.kin, drawn.kin = drawn, greedy
        self.hazards = greedy, drawn  # by whether a text is drawn: what is guessed well often differs much
        self.num_tried = 0
        self._node_share = 1.0  # nodes offered for each token of depth asked for
        self._node_shares: dict[int, tuple[float, float]] = {}  # the same by depth, with the number of rounds

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

    def kept(self) -> dict[str, Any]:
        """What is worth remembering of it, as plain data."""
        shares = [[depth, *known] for depth, known in sorted(self._node_shares.items())]
        hazards, texts = [one.kept() for one in self.hazards], [one.num_texts for one in self.hazards]
        own = {"tried": self.num_tried, "hazards": hazards, "texts": texts}
        return {**own, "nodes": self._node_share, "shares": shares}

    def recall(self, kept: Mapping[str, Any]) -> None:
        """Begin with what another process kept. Raises `ValueError`, `KeyError` or `TypeError` for what is none."""
        for hazards, told, texts in zip(self.hazards, kept["hazards"], kept["texts"], strict=True):
            hazards.recall(told, int(texts))
        self.num_tried = max(0, min(int(kept["tried"]), 1))  # the others are made again: the machine may have been busy
        self._node_share = _share(kept["nodes"])
        self._node_shares = {
            int(depth): (min(_share(rounds), 1 / _SLOW), _share(mean)) for depth, rounds, mean in kept["shares"][:64]
        }


def recall_all(kept: Mapping[str, Any], names: Seq[str], memory: float) -> list[ArmRecord]:
    """New records of these arms, of what each had `kept`, by its name.

    Raises `ValueError`, `KeyError` or `TypeError` for what is none, or of other arms.
    """
    if list(kept) != list(names):
        raise ValueError(f"of the arms {', '.join(kept)}, not {', '.join(names)}")
    made = []
    for name in names:
        record = ArmRecord(memory)
        record.recall(kept[name])
        made.append(record)
    return made


def _share(given: Any) -> float:
    return read_number(given, "number of nodes", most=_MOST_NODES)


class SequenceRecord:
    """One sequence: its acceptance with each arm, what is planned for it, and what watched arms have said."""

    __slots__ = tuple("age choice counted crowd fixed heard is_asked is_drawn outlooks resting watched".split())

    def __init__(self, records: Seq[ArmRecord], memory: float, seq: Sequence) -> None:
        settled = seq.settled
        self.age = 0  # rounds
        self.crowd = 1  # texts that run together, as far as was known when it joined
        self.heard: frozenset[int] = frozenset()  # arms that are to hear it for a while, whatever they promise
        # arms that were near to paying here, or were counted as far; a text that begins again has been counted before
        self.counted = frozenset(range(len(records)) if seq.num_preempted else ())
        self.is_drawn = not seq.request.params.greedy
        self.resting = settled.resting  # arms that have left it, or were never asked for
        # who guesses and how deep, where the request has decided that
        self.fixed = None if settled.depth is None else ArmDepth(settled.arm or 0, settled.depth)
        self.is_asked = settled.arm is not None or settled.depth is not None  # the request has named one or the other
        self.outlooks = [TextOutlook(record.hazards[self.is_drawn], memory) for record in records]
        self.choice = PLAIN
        self.watched: dict[int, tuple[int, HostTree]] = {}  # arm -> a depth and what it would have guessed so deep

    def learn(self, choice: ArmDepth, tokens: Seq[int], accepted: int) -> bool:
        """A round that emitted `tokens`; `accepted`: of the guess of the chosen arm.

        Returns whether an arm that was watched would have been right.
        """
        self.age += 1
        was_right = False
        for arm, outlook in enumerate(self.outlooks):
            if choice.depth and arm == choice.arm:
                outlook.add(choice.depth, accepted)
            elif arm in self.watched:
                asked, guess = self.watched[arm]
                right = guess.count_right(tokens[:asked])
                was_right |= right > 0
                outlook.add(min(asked, len(tokens)), right)
            else:
                outlook.miss()
        self.watched = {}
        return was_right

    def doze(self, rounds: int) -> None:
        """So many rounds of which nothing was looked at."""
        self.age += rounds
        for outlook in self.outlooks:
            outlook.miss(rounds)
