"""Simulated held-out requests for the gate: many tries of it, each a sequence of (domain, old, new)."""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq

import numpy as np
from numpy import ndarray

Request = tuple[str, float, float]
OLD_EASY, OLD_HARD, NEW_EASY = (0.9, 0.8, 0.7, 0.6), (0.5, 0.4, 0.3, 0.2), (0.7, 0.7, 0.7, 0.7)  # mean ratios by depth


def share_passed(make: Callable[[], object], tries: Iterator[Seq[Request]]) -> float:
    """How often a gate passes that is looked at after every request."""
    outcomes = [decide(make(), requests) for requests in tries]
    return outcomes.count("passed") / len(outcomes)


def decide(gate, requests: Seq[Request]) -> str:
    """The outcome, the gate being asked after every request."""
    for request in requests:
        gate.add(*request)
        if (outcome := gate.outcome) != "undecided":
            return outcome
    return "undecided"


def equal_drafts(rng: np.random.Generator, tries: int, count: int) -> Iterator[Seq[Request]]:
    """Two drafts of depth 4, of equal expected accepted length: the old is better where the text is easy to guess.

    The accepted length at a position: r_1 + r_1 r_2 + ..., with ratios r_d = u^((1 - m) / m), u uniform, of mean m.
    """
    sought = length(OLD_EASY) + length(OLD_HARD) - length(NEW_EASY)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if length((middle,) * 4) < sought else (low, middle)
    new_hard = (low,) * 4
    assert abs(length(NEW_EASY) + length(new_hard) - length(OLD_EASY) - length(OLD_HARD)) < 1e-12
    for _ in range(tries):
        easy = rng.random(count) < 0.5
        old = accepted(rng, np.where(easy[:, None], OLD_EASY, OLD_HARD))
        new = accepted(rng, np.where(easy[:, None], NEW_EASY, new_hard))
        yield [("chat", a, b) for a, b in zip(old.tolist(), new.tolist(), strict=True)]


def length(means: Seq[float]) -> float:
    """Expected accepted length of independent ratios with these means."""
    return float(np.cumprod(means).sum())


def accepted(rng: np.random.Generator, means: ndarray, positions: int = 6) -> ndarray:
    """Mean ratios [n, K] -> accepted length of each request [n], over a few positions."""
    means = means[:, None]
    ratios = rng.random((len(means), positions, means.shape[-1])) ** ((1 - means) / means)
    return ratios.cumprod(-1).sum(-1).mean(-1)


def skewed(
    rng: np.random.Generator, tries: int, count: int, depth: int, *, mean: float = 0.0, step: float = 0.3
) -> Iterator[ndarray]:
    """Differences of this mean: nearly always a little more, seldom a loss of all the depth."""
    gain = mean + step
    seldom = (gain - mean) / (gain + depth)
    for _ in range(tries):
        yield np.where(rng.random(count) < seldom, -float(depth), gain)


def requests(differences: ndarray, depth: int, domain: str = "chat") -> list[Request]:
    """Requests with these differences, their lengths within 0..depth."""
    old = np.clip(depth / 2 - differences / 2, np.maximum(0, -differences), depth - np.maximum(0, differences))
    return [(domain, a, min(depth, max(0, a + d))) for a, d in zip(old.tolist(), differences.tolist(), strict=True)]
