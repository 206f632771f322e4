"""What a trial found, as tables: each claim with the standard error of its difference, and each arm at its best rate.

Every arm's rate is the one with the best mean on the texts `tune`, over the seeds with which every rate was tried;
figures are of the texts `test`. A claim's difference is that of two runs of the same seed, which had the same texts in
the same order. It confirms a claim where zero lies outside its interval of 95 % by Student's distribution, which is
wide for few seeds: 4.30 standard errors with three of them, 12.71 with two.
"""

import re
from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass
from math import sqrt
from statistics import mean, stdev
from typing import Any

from outdraft.options.errors import ConfigError

# Student's two-sided quantile of 95 %, for 2, 3, ... seeds; for more than are listed the last one, which is stricter
_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One training and its scores: {"tune" | "test": {"tau", "conditional", "joint"}}."""

    arm: str
    rate: float
    seed: int
    scores: dict[str, dict[str, Any]]
    seconds: float
    parameters: int
    machine: str
    recipe: str = ""  # the digest of what it was trained by; "": older versions did not write it down

    @property
    def place(self) -> str:
        """The folder of this run in that of its trial."""
        return f"{self.arm}-{self.rate:g}-{self.seed}"

    def told(self) -> dict[str, Any]:
        """The table as plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One arm is better than another. `measure`: "tau", "depth N", or "depths N to M" (mean conditional acceptance)."""

    says: str
    better: str
    worse: str
    measure: str = "tau"
    paper: str = ""

    @property
    def depths(self) -> range:
        """Which are compared; none: tokens a pass are. Raises `ConfigError` for an unknown measure."""
        if self.measure == "tau":
            return range(0)
        found = re.fullmatch(r"depth (\d+)|depths (\d+) to (\d+)", self.measure)
        first, last = map(int, (found[2] or found[1], found[3] or found[1])) if found else (0, 0)
        if not 1 <= first <= last:
            raise ConfigError(f"measure {self.measure!r}: write tau, depth 3, or depths 2 to 4")
        return range(first, last + 1)

    def of(self, scores: dict[str, Any]) -> float:
        """The figure that is compared. Raises `ConfigError` for an unknown measure, or one deeper than the draft."""
        if not (depths := self.depths):
            return float(scores["tau"])
        there = scores["conditional"]
        if depths[-1] > len(there):
            raise ConfigError(
                f"measure {self.measure!r} of the claim {self.says!r}: one of its drafts guesses {len(there)} tokens; "
                "compare depths that both have, or tau"
            )
        return mean(float(there[depth - 1]) for depth in depths)


TAU = Claim(says="", better="", worse="")  # a rate chosen by tokens a pass, whatever is claimed


def chosen(runs: Seq[Run], arm: str, claim: Claim) -> list[Run]:
    """The runs of an arm at its best rate, by seed."""
    own = [run for run in runs if run.arm == arm]
    rates = {run.rate for run in own}
    if not rates:
        return []
    tried = set.intersection(*({run.seed for run in own if run.rate == rate} for rate in rates))
    judged = [run for run in own if run.seed in tried] or own
    best = max(
        {run.rate for run in judged},
        key=lambda rate: mean(claim.of(run.scores["tune"]) for run in judged if run.rate == rate),
    )
    return sorted((run for run in own if run.rate == best), key=lambda run: run.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Of two arms, over the seeds that both have."""

    mean: float
    error: float  # its standard error
    seeds: int

    @property
    def verdict(self) -> str:
        """Whether it confirms a claim, by Student's interval of 95 % for so many seeds."""
        least = self.error * _QUANTILES[min(self.seeds - 2, len(_QUANTILES) - 1)]
        return "yes" if self.mean > least else "no: the other way" if self.mean < -least else "not at this size"


def difference(runs: Seq[Run], claim: Claim) -> Difference | None:
    """Of the better arm over the worse. None: one seed, which confirms nothing."""
    better, worse = (
        {run.seed: claim.of(run.scores["test"]) for run in chosen(runs, arm, claim)}
        for arm in (claim.better, claim.worse)
    )
    far = [better[seed] - worse[seed] for seed in sorted(better.keys() & worse.keys())]
    if len(far) < 2:
        return None
    return Difference(mean=mean(far), error=stdev(far) / sqrt(len(far)), seeds=len(far))


def tables(runs: Seq[Run], claims: Seq[Claim]) -> str:
    """Markdown: the claims, then the arms."""
    lines = ["| claim | measure | with | without | difference | confirmed |", "| --- | --- | --- | --- | --- | --- |"]
    for claim in claims:
        found = difference(runs, claim)
        sides = [
            [claim.of(run.scores["test"]) for run in chosen(runs, arm, claim)] for arm in (claim.better, claim.worse)
        ]
        shown = [f"{mean(side):.3f}" if side else "" for side in sides]
        far = f"{found.mean:+.4f} ± {found.error:.4f} | {found.verdict}" if found is not None else "|"
        says = f"[{claim.says}]({claim.paper})" if claim.paper else claim.says
        lines.append(f"| {says} | {claim.measure} | {shown[0]} | {shown[1]} | {far} |")
    lines += [
        "",
        "| arm | rates x | parameters | seconds | tokens a pass | accepted at 1, 2, ... |",
        "| --- " * 6 + "|",
    ]
    for arm in dict.fromkeys(run.arm for run in runs):
        own = chosen(runs, arm, TAU)
        by_depth = [mean(column) for column in zip(*(run.scores["test"]["conditional"] for run in own), strict=True)]
        lines.append(
            f"| {arm} | {own[0].rate:g} | {own[0].parameters:,} | {mean(run.seconds for run in own):.0f} | "
            f"{mean(run.scores['test']['tau'] for run in own):.3f} | {' '.join(f'{x:.3f}' for x in by_depth)} |"
        )
    return "\n".join(lines) + "\n"
