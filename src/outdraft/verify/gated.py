"""Gated rejection: the coin min(1, p / q), but only for children that pass a gate; made exact, or as first published.

    gates    x among the top k of p    p(x) >= threshold    p(x) >= ratio q(x)    the drafter's own p(x) >= confidence
    combine  "all": x passes every gate that is set    "any": one of them is enough

Paper: Fast Inference from Transformers via Speculative Decoding, 2022, https://arxiv.org/abs/2211.17192, whose proof
holds for any acceptance a(x) with a(x) q(x) <= p(x), if what follows a rejection is drawn from p - a q.
exact=True: that residual, so every gate is lossless and merely accepts less. exact=False: "reviews" of drafts as
tutorials have them: keep whatever passes the gates, without a coin, then one token of p; lossy.
In: chains and trees (siblings without replacement). Out: a path and one more token.
"""

from dataclasses import dataclass
from functools import reduce
from typing import Literal

import torch
from torch import Tensor

from outdraft.core.method import RuleMethod, arxiv
from outdraft.core.verdict import Verdict
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range
from outdraft.verify.shared.case import Case
from outdraft.verify.shared.per_draft import PerDraft
from outdraft.verify.shared.relaxed import Guesses, keep_longest
from outdraft.verify.shared.siblings import judge_siblings


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedOptions:
    """Which gates are set; 0: none of that kind. Raises `ConfigError` naming what is out of range."""

    # the first gate: a guess must be among this many most probable tokens of the target (ties included); 0 sets no
    # gate
    top_k: int = 0
    threshold: float = 0.0  # the second gate: the target must give a guess at least this probability; 0 sets no gate
    # the third gate: p(x) must be at least ratio * q(x); 1 is "deterministic", 0.5 "conservative" verification, 0 no
    # gate
    ratio: float = 0.0
    # the fourth gate: the drafter's own probability of the guess must be at least this; 0 sets no gate
    confidence: float = 0.0
    # whether a guess must pass all of the gates that are set, or any one of them
    combine: Literal["all", "any"] = "all"
    # whether a guess that passes is then judged by the exact rule; false keeps it at once, which is lossy
    exact: bool = True

    def __post_init__(self) -> None:
        gates = ("top_k", "threshold", "ratio", "confidence")
        check_range(self, *gates, least=0, note="0 is no gate")
        if self.combine not in ("all", "any"):
            raise ConfigError(f"combine={self.combine!r}: it is 'all' or 'any'")
        if not self.exact and not any(getattr(self, name) for name in gates):
            raise ConfigError(f"exact=False without a gate would keep every guess: set one of {', '.join(gates)}")


def open_tokens(options: GatedOptions, p: Tensor, q: Tensor | float, confidence: Tensor | float) -> Tensor:
    """Which tokens may be accepted: p, q and the drafter's own probability [..., V] -> [..., V] bool."""
    passed: list[Tensor] = []  # of each gate that is set
    if options.top_k:
        passed.append(p >= p.topk(min(options.top_k, p.shape[-1]), -1).values[..., -1:])
    for least, scale in ((options.threshold, 1.0), (options.ratio, q)):
        if least:
            passed.append(p >= least * scale)
    if options.confidence:
        passed.append(torch.ones_like(p, dtype=torch.bool) & (confidence >= options.confidence))
    if not passed:
        return torch.ones_like(p, dtype=torch.bool)
    return reduce(torch.logical_and if options.combine == "all" else torch.logical_or, passed)


def build(options: GatedOptions) -> PerDraft:
    """The exact rule, or the lossy one."""

    def gate(case: Case, child: int) -> Tensor:
        p = case.p[case.tree.parents[child]]
        if case.q is not None:
            q = case.q[case.row(child)]
            return open_tokens(options, p, q, q)
        sure = 1.0 if case.confidence is None else float(case.confidence[child])
        return open_tokens(options, p, 1.0, sure)  # a deterministic guess is sure, unless the drafter says how sure

    def exact(case: Case) -> Verdict:
        return judge_siblings(case, gate=gate)

    def lossy(case: Case) -> Verdict:
        def keep(guesses: Guesses) -> Tensor:
            passed = torch.stack([gate(case, node) for node in guesses.nodes])  # [n, V]
            return passed.gather(-1, guesses.tokens[:, None])[:, 0]

        return keep_longest(case, keep)

    return PerDraft(exact) if options.exact else PerDraft(lossy, lossless=False)


METHOD = RuleMethod(
    name="gated",
    summary="rejection with gates (top k, threshold, ratio, confidence): exact, or with exact=false lossy",
    build=build,
    options=GatedOptions,
    paper=arxiv("2211.17192", "Fast Inference from Transformers via Speculative Decoding"),
    judges=("chain", "tree"),
    prefers_drawn=True,
    soft=lambda options: not options.exact,
    reads_confidence=lambda options: options.confidence > 0,
)
