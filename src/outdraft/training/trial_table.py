"""What a trial found, as tables: each claim with the standard error of its difference, and each arm at its best rate.

Every arm's rate is the one with the best mean on the texts `tune`, over the seeds with which every rate was tried;
figures are of the texts `test`. A claim's difference is that of two runs of the same seed, which had the same texts in
the same order.
"""

from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass
from math import sqrt
from statistics import mean, stdev
from typing import Any

from outdraft.core.errors import ConfigError


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

    def of(self, scores: dict[str, Any]) -> float:
        """The figure that is compared. Raises `ConfigError` for a measure that nobody knows."""
        words = self.measure.split()
        if words == ["tau"]:
            return float(scores["tau"])
        try:
            first, last = (int(words[1]), int(words[3])) if len(words) == 4 else (int(words[1]), int(words[1]))
            return mean(float(x) for x in scores["conditional"][first - 1 : last])
        except (ValueError, IndexError) as error:
            raise ConfigError(f"measure {self.measure!r}: write tau, depth 3, or depths 2 to 4") from error


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


def difference(runs: Seq[Run], claim: Claim) -> tuple[float, float] | None:
    """Of the better arm over the worse: mean over the seeds that both have, and its standard error; None: too few."""
    better, worse = ({run.seed: claim.of(run.scores["test"]) for run in chosen(runs, arm, claim)}
                     for arm in (claim.better, claim.worse))  # fmt: skip
    far = [better[seed] - worse[seed] for seed in sorted(better.keys() & worse.keys())]
    return (mean(far), stdev(far) / sqrt(len(far))) if len(far) > 1 else None


def verdict(found: tuple[float, float]) -> str:
    """Whether a difference, given with its standard error, confirms a claim: two standard errors decide."""
    far, error = found
    return "yes" if far > 2 * error else "no: the other way" if far < -2 * error else "not at this size"


def tables(runs: Seq[Run], claims: Seq[Claim]) -> str:
    """Markdown: the claims, then the arms."""
    lines = ["| claim | measure | with | without | difference | confirmed |", "| --- | --- | --- | --- | --- | --- |"]
    for claim in claims:
        found = difference(runs, claim)
        sides = [
            [claim.of(run.scores["test"]) for run in chosen(runs, arm, claim)] for arm in (claim.better, claim.worse)
        ]
        shown = [f"{mean(side):.3f}" if side else "" for side in sides]
        far = f"{found[0]:+.4f} ± {found[1]:.4f} | {verdict(found)}" if found is not None else "|"
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
