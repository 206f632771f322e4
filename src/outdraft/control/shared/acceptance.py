"""How far a guess survives: what an arm has shown on all texts, times what this text has shown beyond that.

    an arm, all texts   h_i(state) = P(stopped at i | reached i)      state: how the arm's last guess here ended
                        where few texts have shown it, at most as if some more had been of a middling arm
    one text            factor = (stops seen + c) / (stops foretold + c)
    survival            S_i = (1 - factor h_1) ... (1 - factor h_i)

A guess stops at i where the target disagrees there, or where the drafter offered no more: both end the gain. A guess of
depth k makes 1 + S_1 + ... + S_k tokens a round. One number is learned within a few rounds, which is all that a short
answer has; the state notices that a text has begun to repeat itself. All of it forgets. Data in: rounds, as (depth,
accepted); data out: survivals.
"""

from collections.abc import Sequence as Seq
from math import isfinite
from typing import Any

_STOPPED, _PARTLY, _WELL, _UNKNOWN = range(4)  # states: nothing was right; some; all of it, or _MUCH; nothing is known
_MUCH = 4
_LEAN = 4.0  # rounds that a prior weighs
_START = 0.25  # P(a token is rejected) before anything is known
_START_WEIGHT = 4.0  # tokens that this weighs
_LEAN_TEXTS = 2.0  # texts that it weighs beside those that an arm has guessed in, where it is the better of the two
_FEW = 20.0  # guesses in a text after which they weigh less
_STOPS = 3.0  # c: stops that a text's factor leans on
_STALE = 8  # rounds without a guess after which the last one shows nothing
_LARGEST = 1e9  # where weights begin anew
_KEPT = 64.0  # tokens that may weigh in what another process has left, so that new texts soon count for more
_KEPT_TEXTS = 4  # and texts
_DEEPEST = 64  # tokens of a guess of which it is kept


class Hazards:
    """One arm on all texts, or on all of one sort. `memory`: rounds after which a round counts 1/e."""

    __slots__ = ("_cells", "_growth", "_tails", "_unit", "_whole", "kin", "num_texts")

    def __init__(self, memory: float) -> None:
        self.num_texts = 0  # that it has guessed in
        self.kin: Hazards | None = None  # of another sort: its overall rate is the first guess about this one
        self._growth = 1 + 1 / memory
        self._unit = 1.0  # weight of the coming round: it grows, so that earlier ones need not be touched
        self._cells: list[list[list[float]]] = [[], [], [], []]  # [state][i]: stopped at and reached token i + 1
        self._tails = [[0.0, 0.0] for _ in self._cells]  # [state]: summed over i > 0; the first token is unlike others
        self._whole = [0.0, 0.0]  # summed over everything

    def add(self, state: int, depth: int, accepted: int) -> None:
        """A round that asked for `depth` tokens and got `accepted`."""
        cells, tail, whole = self._cells[state], self._tails[state], self._whole
        cells += [[0.0, 0.0] for _ in range(depth - len(cells))]
        self._unit *= self._growth
        unit, tried = self._unit, min(accepted + 1, depth)
        for cell in cells[:tried]:
            cell[1] += unit
        whole[1] += unit * tried
        tail[1] += unit * (tried - 1)
        if accepted < depth:
            cells[accepted][0] += unit
            whole[0] += unit
            tail[0] += unit * (accepted > 0)
        if unit > _LARGEST:
            for sums in (whole, *self._tails, *(cell for cells in self._cells for cell in cells)):
                sums[:] = [weight / unit for weight in sums]
            self._unit = 1.0

    def hazards(self, state: int, depth: int, num_guesses: int | None = None) -> list[float]:
        """h_1 ... h_depth: each place leans on all others of its state, the first one and a new state on everything.

        What is worse than that of a middling arm a text that has seen so many guesses itself believes in part: one text
        says little of others.
        """
        trust = 1.0
        if num_guesses is not None:
            texts = self.num_texts if self.kin is None else self.num_texts + self.kin.num_texts
            trust = texts / (texts + _LEAN_TEXTS * min(1.0, _FEW / max(1, num_guesses)))
        lean, cells = _LEAN * self._unit, self._cells[state]
        anywhere = self._overall(_START if self.kin is None else self.kin._overall(_START))
        stopped, reached = self._tails[state]
        later = (stopped + lean * anywhere) / (reached + lean)
        found = [
            (stopped + lean * (later if i else anywhere)) / (reached + lean)
            for i, (stopped, reached) in enumerate(cells[:depth])
        ]
        found += [later] * (depth - len(found))
        for i, one in enumerate(found) if trust < 1 else ():
            if one > _START:
                found[i] = _START + trust * (one - _START)
        return found

    def _overall(self, start: float) -> float:
        """P(stopped | reached) anywhere. `start`: what it is before anything is known."""
        lean = _START_WEIGHT * self._unit
        return (self._whole[0] + start * lean) / (self._whole[1] + lean)

    def kept(self) -> list[list[list[float]]]:
        """What is worth remembering: [state][i] -> how often a guess stopped at token i + 1, and reached it."""
        return [[[weight / self._unit for weight in cell] for cell in cells[:_DEEPEST]] for cells in self._cells]

    def recall(self, kept: Seq[Seq[Seq[Any]]], num_texts: int) -> None:
        """Begin with what another process kept.

        Raises `ValueError`, `KeyError` or `TypeError` for what is none, and has then changed nothing.
        """
        cells = [[[float(stopped), float(reached)] for stopped, reached in own[:_DEEPEST]] for own in kept]
        every = [cell for own in cells for cell in own]
        if len(cells) != len(self._cells) or not all(isfinite(b) and 0 <= a <= b + 1e-9 for a, b in every):
            raise ValueError("these are no counts of guesses that stopped and were reached")
        reached = sum(cell[1] for cell in every)
        share = min(1.0, _KEPT / reached) if reached else 1.0
        self._cells = [[[share * weight for weight in cell] for cell in own] for own in cells]
        self._tails = [[sum(cell[k] for cell in own[1:]) for k in (0, 1)] for own in self._cells]
        self._whole = [sum(cell[k] for own in self._cells for cell in own) for k in (0, 1)]
        self._unit = 1.0
        self.num_texts = max(0, min(num_texts, _KEPT_TEXTS))


class TextOutlook:
    """One arm on one text. `memory`: rounds after which a round counts 1/e."""

    __slots__ = ("_arm", "_foretold", "_keep", "_last", "_num_guesses", "_num_missed", "_stops")

    def __init__(self, arm: Hazards, memory: float) -> None:
        self._arm = arm
        self._keep = 1 - 1 / memory
        self._stops = self._foretold = 0.0  # when it guessed last
        self._last = _UNKNOWN  # how its last guess ended
        self._num_guesses = 0
        self._num_missed = 0  # rounds since then

    def add(self, depth: int, accepted: int) -> None:
        """A round in which it guessed `depth` tokens, of which `accepted` were right."""
        state, weight = self._state, self._weight * self._keep
        foretold = self._arm.hazards(state, min(accepted + 1, depth), self._num_guesses)
        self._arm.num_texts += not self._num_guesses
        self._num_guesses += 1
        self._stops = self._stops * weight + (accepted < depth)
        self._foretold = self._foretold * weight + sum(foretold)
        self._arm.add(state, depth, accepted)
        self._last = _WELL if accepted >= min(depth, _MUCH) else _PARTLY if accepted else _STOPPED
        self._num_missed = 0

    def miss(self, rounds: int = 1) -> None:
        """Rounds of which nothing is known; each takes half as much from the weight of the rest as one that is."""
        self._num_missed += rounds

    def survivals(self, depth: int) -> list[float]:
        weight = self._weight
        factor = (self._stops * weight + _STOPS) / (self._foretold * weight + _STOPS)
        survivals, survival = [], 1.0
        for hazard in self._arm.hazards(self._state, depth, self._num_guesses):
            survival *= 1 - min(1.0, factor * hazard)
            survivals.append(survival)
        return survivals

    @property
    def _state(self) -> int:
        return self._last if self._num_missed <= _STALE else _UNKNOWN

    @property
    def _weight(self) -> float:
        """Of what it knows, now."""
        return float(self._keep ** (0.5 * self._num_missed)) if self._num_missed else 1.0
