"""How the guesses of one drafter fare, position by position: counts that are cheap and bounded.

             pending -> a -> b -> c        the rule kept a and b, and rejected c and its younger sibling
    examined            1    2    3        c stands for both: the eldest child is what the drafter would guess alone

At each position of the examined path (the accepted nodes, then the rejected eldest child): how often it was reached and
accepted, as `engine/counters.py` counts; the drafter's own probability, where it says one; and the guess's probability
over that of the target's best token, p(x) / max p at temperature 1, which says how near a rejected guess was.

Probe nodes cannot be accepted and are not examined. A draft without an acceptable node is no round, and neither are
tokens that a mask forced: drafters see those as text that was read (`decode/forced.py`). `Seen` does not say which
drafter guessed, so the caller adds rounds of one drafter only.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from typing import Any

import torch

from outdraft.adapt.examined import Bin, Examined
from outdraft.core.draft import host_tree
from outdraft.core.drafter import Seen

_BINS = 10  # of the calibration table
_LARGEST = 1e9  # weight of a round where weights begin anew


@dataclass(slots=True, kw_only=True)
class Observed:
    """Rounds of one drafter in one domain, in the order in which they came."""

    memory: int = 1000  # rounds after which a round counts 1/e in `recent`
    block: int = 100  # rounds of a block by now
    most_blocks: int = 128  # where there would be more, neighbours are joined and blocks become twice as long
    blocks: list[Examined] = field(default_factory=list)  # oldest first; nothing is forgotten, but blocks grow
    calibration: list[Bin] = field(default_factory=lambda: [Bin() for _ in range(_BINS)])  # of own probability
    _fading: Examined = field(default_factory=Examined)
    _unit: float = 1.0  # weight of the coming round in `_fading`: it grows, so that earlier ones need not be touched

    def add(self, seen: Seen) -> None:
        """One verified draft; what is none (a prompt chunk, the pending token alone) changes nothing.

        Reads the logits of the examined nodes' parents, n rows of V numbers.
        """
        draft, logits, verdict = seen.draft, seen.logits, seen.verdict
        if draft is None or logits is None or verdict is None or draft.num_nodes == 1:
            return
        tree, path = host_tree(draft), verdict.path
        parents = [node for node in (0, *path) if tree.children[node]]
        if not parents:
            return
        eldest = [tree.children[node][0] for node in parents]
        nodes = [*path, *eldest[len(path) :]]
        rows = logits[parents].float()  # [n, V]
        guessed = rows.gather(1, draft.tokens[nodes].to(rows.device)[:, None])[:, 0]
        near = torch.exp(guessed - rows.amax(1)).tolist()
        sure = [] if draft.confidence is None else draft.confidence.tolist()
        for i, child in enumerate(eldest if sure else ()):
            its = self.calibration[min(_BINS - 1, int(_BINS * sure[child]))]
            its.add(sure[child], is_right=child == nodes[i] and i < len(path))
        self.count(len(path), near, [sure[node] for node in nodes] if sure else [])

    def count(self, accepted: int, near: Seq[float], sure: Seq[float]) -> None:
        """A round by its numbers at the examined nodes: p(x) / max p, and own probabilities or none of them.

        `add` counts what it is given here; the table of calibration is its own affair, as it is of eldest children.
        """
        if not self.blocks or self.blocks[-1].rounds >= self.block:
            if len(self.blocks) >= self.most_blocks:
                self._join_neighbours()
            self.blocks.append(Examined())
        self.blocks[-1].add(accepted, near, sure)
        self._unit *= 1 + 1 / self.memory
        self._fading.add(accepted, near, sure, self._unit)
        if self._unit > _LARGEST:
            self._fading, self._unit = self.recent, 1.0

    def _join_neighbours(self) -> None:
        pairs = zip_longest(self.blocks[::2], self.blocks[1::2], fillvalue=Examined())
        self.blocks = [a + b for a, b in pairs]
        self.block *= 2

    @property
    def whole(self) -> Examined:
        """All rounds, in one sum by position."""
        return Examined.total(self.blocks)

    @property
    def recent(self) -> Examined:
        """All rounds, the latest with weight 1 and earlier ones with ever less: ratios are moving averages."""
        return self._fading.scaled(1 / self._unit)

    def joined(self, other: "Observed") -> "Observed":
        """Both, as of engines that ran beside each other: the first rounds of one beside the first of the other."""
        ours, theirs = sorted((self.copied(), other.copied()), key=lambda one: one.block)
        while ours.block < theirs.block:
            ours._join_neighbours()
        blocks = zip_longest(ours.blocks, theirs.blocks, fillvalue=Examined())
        bins = zip(ours.calibration, theirs.calibration, strict=True)
        return Observed(
            memory=self.memory,
            block=ours.block,
            most_blocks=self.most_blocks,
            blocks=[a + b for a, b in blocks],
            calibration=[a + b for a, b in bins],
            _fading=ours.recent + theirs.recent,
        )

    def copied(self) -> "Observed":
        """The same at this moment: what is over is shared, since only the latest block changes."""
        latest = [one.scaled(1.0) for one in self.blocks[-1:]]
        return replace(
            self,
            blocks=[*self.blocks[:-1], *latest],
            calibration=[replace(one) for one in self.calibration],
            _fading=self._fading.scaled(1.0),
        )

    def data(self) -> dict[str, Any]:
        """Plain data for JSON; what is recent is not in it."""
        return {
            "block": self.block,
            "blocks": [asdict(one) for one in self.blocks],
            "calibration": [asdict(one) for one in self.calibration],
        }

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Observed":
        """What `data` gave. Raises `KeyError`, `TypeError` or `ValueError` for what is none."""
        return cls(
            block=int(data["block"]),
            blocks=[Examined(**one) for one in data["blocks"]],
            calibration=[Bin(**one) for one in data["calibration"]],
        )
