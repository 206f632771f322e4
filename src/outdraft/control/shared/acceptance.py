"""How far a guess survives, learned from rounds: hazards h_i = P(stopped at i | reached i), which forget.

A guess stops at i where the target disagrees there, or where the drafter offered no more: both end the gain. The
survival S_i = (1 - h_1) ... (1 - h_i) of a guess of depth k makes 1 + S_1 + ... + S_k tokens a round. A sequence leans
on what others of its engine have shown as on `_LEAN` rounds of its own. Data in: (depth asked, accepted) a round; data
out: survivals.
"""

_LEAN = 4.0  # rounds that the prior of a hazard weighs
_START = (1.0, 4.0)  # stops, trials before anything is known: three of four are accepted
_LARGEST = 1e9  # where weights begin anew


class Hazards:
    """`memory`: rounds after which a round counts 1/e; `prior`: what is leant on."""

    __slots__ = ("_growth", "_prior", "_reached", "_stopped", "_unit", "_whole")

    def __init__(self, memory: float, prior: "Hazards | None" = None) -> None:
        self._growth = 1 + 1 / memory
        self._prior = prior
        self._unit = 1.0  # weight of the coming round: it grows, so that earlier ones need not be touched
        self._reached: list[float] = []  # [i]: weight of rounds that reached draft position i + 1
        self._stopped: list[float] = []  # and stopped there
        self._whole = [0.0, 0.0]  # stopped, reached at any position

    def add(self, depth: int, accepted: int) -> None:
        """A round that asked for `depth` tokens and got `accepted`."""
        if len(self._reached) < depth:
            missing = depth - len(self._reached)
            self._reached += [0.0] * missing
            self._stopped += [0.0] * missing
        self._unit *= self._growth
        unit, tried = self._unit, min(accepted + 1, depth)
        for i in range(tried):
            self._reached[i] += unit
        if accepted < depth:
            self._stopped[accepted] += unit
        self._whole[0] += unit * (accepted < depth)
        self._whole[1] += unit * tried
        if unit > _LARGEST:
            self._reached = [weight / unit for weight in self._reached]
            self._stopped = [weight / unit for weight in self._stopped]
            self._whole = [weight / unit for weight in self._whole]
            self._unit = 1.0

    def age(self, rounds: int) -> None:
        """So many rounds went by without a guess: what is known weighs less, half as fast."""
        self._unit *= self._growth ** (max(0, min(rounds, 400)) / 2)

    @property
    def rate(self) -> float:
        """The hazard wherever it is, by maximum likelihood, with the prior's rounds."""
        stops, trials = self._whole[0] / self._unit, self._whole[1] / self._unit
        if self._prior is None:
            return (stops + _START[0]) / (trials + _START[1])
        return (stops + _LEAN * self._prior.rate) / (trials + _LEAN)

    def hazards(self, depth: int) -> list[float]:
        """h_1 ... h_depth."""
        rate = self.rate
        if self._prior is None:
            before = [rate] * depth
        else:
            ratio = rate / self._prior.rate
            before = [min(1.0, hazard * ratio) for hazard in self._prior.hazards(depth)]
        lean, known = _LEAN * self._unit, len(self._reached)
        return [
            (self._stopped[i] + lean * before[i]) / (self._reached[i] + lean) if i < known else before[i]
            for i in range(depth)
        ]

    def survivals(self, depth: int) -> list[float]:
        """S_1 ... S_depth."""
        survivals, survival = [], 1.0
        for hazard in self.hazards(depth):
            survival *= 1 - hazard
            survivals.append(survival)
        return survivals
