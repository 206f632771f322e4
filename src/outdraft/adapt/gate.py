"""Does a new draft accept more than the old one, and in no domain much less? A test that may be asked at any time.

    held-out request -> domain, old, new -> Wealth ...   all:      mean(new - old) > 0         level a_j
                                                         domain:   mean(new - old) > -margin   level a_j s(1)
                                                         the pool of small domains: the same   level a_j s(2 + large)
                                                         g-th domain: mean < -margin: failed   level a_j s(g)

with s(i) = 6 / (pi i)^2, whose sum is 1, and a_j = alpha s(j) for the j-th candidate. A candidate passes once each of
the first three lines has been shown, whether or not at one moment. One false claim is enough to stop it, so no level is
divided among the domains (an intersection-union test: Berger, Technometrics, 1982). If the mean of all is not above 0,
a false pass takes an error of the first line: a_j. Else a domain loses, and a false pass takes an error about the first
such domain that becomes large, or, before that, about the pool. The pool changes whenever a domain becomes large, so it
is one process for each number of large domains; the levels of these and of that domain add up to a_j. All candidates
together pass falsely with at most alpha. The processes and their source: `wealth.py`.

All means are of differences that are cut to -cut..cut: a process that must allow for a loss of the whole depth in one
request needs depth / cut times as many. What that hides: of a request that loses more than `cut`, the rest.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import log, pi
from typing import Literal

from outdraft.adapt.wealth import Wealth
from outdraft.options.checked import check_fields, check_value
from outdraft.options.errors import ConfigError, RequestError
from outdraft.options.ranges import MOST_NODES, check_number, check_range
from outdraft.options.shown import shown

Outcome = Literal["passed", "undecided", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """Raises `ConfigError` naming what is out of range."""

    alpha: float = 0.05  # the probability that any of a draft's candidates passes although it should not, at most
    margin: float = 0.1  # tokens a round that a domain may lose
    cut: float = 0.5  # tokens a round: a greater gain or loss of one request counts as so much
    least: int = 20  # held-out requests from which on a domain is tested by itself, not in the pool
    most: int = 500  # held-out requests after which a candidate that has not passed has failed

    def __post_init__(self) -> None:
        check_fields(self)
        check_range(self, "alpha", least=1e-9, most=0.5)
        check_range(self, "margin", least=0, most=MOST_NODES)
        check_range(self, "cut", least=1e-6, most=MOST_NODES)
        check_range(self, "least", "most", least=1)
        if self.least > self.most:
            raise ConfigError(f"least={self.least}: must be at most most={self.most}, or no domain is tested by itself")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateVerdict:
    """What a gate says, and a sentence: the statistic, the number of requests, and what to do."""

    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """What is to be shown, by which process, from which logarithm of the wealth on."""

    what: str
    wealth: Wealth
    need: float

    def __str__(self) -> str:
        return f"log wealth {self.wealth.best:.2f} of {self.need:.2f} that {self.what}"


@dataclass(slots=True)
class _Domain:
    place: int  # 1, 2, ... in order of their first requests
    differences: list[float] = field(default_factory=list)  # tokens a round
    keeps: Wealth = field(default_factory=Wealth)  # the mean is above -margin
    loses: Wealth = field(default_factory=Wealth)  # below it


class Gate:
    """One candidate against the draft that serves.

    `depth`: draft tokens of a round, so that accepted lengths lie within 0..depth. `tries`: the number of candidates of
    this draft, this one included; it goes on counting after one has passed. Held-out requests are a fair sample of the
    traffic, in an order that does not depend on the drafts, and the candidate was trained without them.
    """

    def __init__(self, options: GateOptions, depth: int, tries: int) -> None:
        check_number("depth", check_value("depth", depth, int), least=1, most=MOST_NODES)
        check_number("tries", check_value("tries", tries, int), least=1)
        self._cut = min(options.cut, float(depth))
        if options.margin >= self._cut:
            raise ConfigError(
                f"margin={options.margin:g}: must be below cut={options.cut:g} and depth={depth}, all in tokens a round"
            )
        self.options, self.depth, self.tries = options, depth, tries
        self._seen: list[tuple[str, float, float]] = []
        self._all, self._pool = Wealth(), Wealth()
        self._domains: dict[str, _Domain] = {}
        self._num_large = 0
        self._verdict: GateVerdict | None = None  # once decided

    def add(self, domain: str, old: float, new: float) -> None:
        """The next held-out request: its domain, and the expected accepted length of both drafts, tokens a round.

        Raises `RequestError` for a length outside 0..depth, a domain that is no text, and where the gate has decided.
        """
        for name, value in (("old", old), ("new", new)):
            if not (isinstance(value, int | float) and 0 <= value <= self.depth):
                raise RequestError(f"{name}={shown(value)}: give accepted tokens a round, from 0 to depth={self.depth}")
        if not isinstance(domain, str):
            raise RequestError(f"domain={shown(domain)}: give its name as text")
        if self._verdict is not None:
            raise RequestError(f"this gate has decided: {self._verdict.outcome}; give the next candidate its own")
        self._seen.append((domain, float(old), float(new)))
        self._enter(domain, self._difference(old, new))
        self._verdict = self._decided()

    @property
    def outcome(self) -> Outcome:
        """That of the verdict, without the sentence: a loop asks for it after every request."""
        return "undecided" if self._verdict is None else self._verdict.outcome

    @property
    def verdict(self) -> GateVerdict:
        """What has been shown so far; a gate that has passed or failed stays so."""
        if self._verdict is not None:
            return self._verdict
        return self._say("undecided", f"{self._furthest()}; give more held-out requests")

    def _difference(self, old: float, new: float) -> float:
        return max(-self._cut, min(self._cut, new - old))

    def _enter(self, name: str, difference: float) -> None:
        """Each process gets the difference on its own scale, where the least possible number is -1."""
        domain = self._domains.setdefault(name, _Domain(place=len(self._domains) + 1))
        domain.differences.append(difference)
        kept, margin = self._above_margin(difference), self.options.margin
        self._all.add(difference / self._cut)
        domain.keeps.add(kept)
        domain.loses.add(-(difference + margin) / (self._cut + margin))
        if len(domain.differences) < self.options.least:
            self._pool.add(kept)
        elif len(domain.differences) == self.options.least:
            self._num_large += 1
            self._pool = Wealth()  # as if the domain had never been in it
            for other, old, new in self._seen:
                if not self._is_large(other):
                    self._pool.add(self._above_margin(self._difference(old, new)))

    def _above_margin(self, difference: float) -> float:
        return (difference + self.options.margin) / (self._cut - self.options.margin)

    def _is_large(self, name: str) -> bool:
        return len(self._domains[name].differences) >= self.options.least

    def _claims(self) -> Iterator[_Claim]:
        """All that must be shown."""
        yield _Claim(what="the new draft accepts more", wealth=self._all, need=self._need())
        for name, domain in self._domains.items():
            if self._is_large(name):
                yield _Claim(what=self._kept(f"domain {shown(name)}"), wealth=domain.keeps, need=self._need(1))
        small = [shown(name) for name in self._domains if not self._is_large(name)]
        if small:
            what = self._kept(f"the pool of small domains ({', '.join(small)})")
            yield _Claim(what=what, wealth=self._pool, need=self._need(2 + self._num_large))

    def _kept(self, where: str) -> str:
        return f"{where} loses at most {self.options.margin:g} tokens a round"

    def _need(self, place: int | None = None) -> float:
        """The logarithm of 1 / level: of a share of the candidate's level, or of all of it."""
        level = self.options.alpha * _share(self.tries)
        return -log(level if place is None else level * _share(place))

    def _decided(self) -> GateVerdict | None:
        """What the latest request decides, if anything."""
        name, count = self._seen[-1][0], len(self._seen)
        domain = self._domains[name]
        need = self._need(domain.place)
        if domain.loses.best >= need:
            what = f"domain {shown(name)} loses more than {self.options.margin:g} tokens a round"
            mean = sum(domain.differences) / len(domain.differences)
            found = f"{_Claim(what=what, wealth=domain.loses, need=need)}: {mean:+.2f} in its {len(domain.differences)}"
            cure = f"keep the old draft, and train on more of {shown(name)} or raise margin"
            return self._say("failed", f"{found}; {cure}")
        if all(claim.wealth.best >= claim.need for claim in self._claims()):
            return self._say("passed", f"{self._furthest()}, and all else is shown too; use the new draft")
        if count == self.options.most:
            cure = f"keep the old draft, and train longer or raise most={count}"
            return self._say("failed", f"{self._furthest()}; {cure}")
        return None

    def _say(self, outcome: Outcome, found: str) -> GateVerdict:
        count = len(self._seen)
        gain = sum(new - old for _, old, new in self._seen) / max(1, count)
        reason = f"{outcome} after {count} held-out requests ({gain:+.2f} tokens a round): {found}"
        return GateVerdict(outcome=outcome, reason=reason)

    def _furthest(self) -> _Claim:
        """The claim that lacks most."""
        return max(self._claims(), key=lambda claim: claim.need - claim.wealth.best)


def _share(place: int) -> float:
    """Of a level, the i-th of endlessly many parts."""
    return 6 / (pi * place) ** 2
