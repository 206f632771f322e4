"""The sampled half of a drafter's proof: unseeded texts have the target's distribution, and a biased rule is noticed.

Short texts over a small vocabulary are written by the whole engine, in ragged batches, under the rule that `auto` picks
for the drafter's guesses (which reads `q`: a drafter whose q is not the distribution that it drew from is caught here).
Every token is counted under the tokens before it, and the counts are judged against the target's exact distributions.
"""

from collections.abc import Sequence as Seq
from dataclasses import replace

import torch
from torch import Tensor

from outdraft.core.coins import Coins
from outdraft.core.packing import PackedDrafts
from outdraft.core.request import Request
from outdraft.core.verdict import Verdict
from outdraft.core.verifier import Verifier
from outdraft.options.params import SamplingParams
from outdraft.sampling.warp import warp_nodes
from outdraft.testing.accept_all import accept_all
from outdraft.testing.audit import require
from outdraft.testing.statistics import SampledDistribution, judge_counts
from outdraft.testing.subject import Subject, run
from outdraft.verify.auto import Auto
from outdraft.verify.shared.case import Case
from outdraft.verify.shared.per_draft import PerDraft

PROMPT = (1, 2, 1, 2, 3, 1, 2)  # something to copy, so that look-up drafters draft
LENGTH = 3
LONGER = 5  # tokens of a text of what proposes nothing before the second pass
ASKED = Request(prompt_token_ids=PROMPT, params=SamplingParams(temperature=1.0))
CERTAIN = 0.2  # deterministic guesses a text: from so many on, a rule that keeps them all cannot go unnoticed


class Uncoupled:
    """A rule, denied the shared noise: what `auto` does for requests without a seed, reproducibly with one."""

    def __init__(self, rule: Verifier) -> None:
        self.rule = rule
        self.lossless = rule.lossless

    def couples(self, request: Request) -> bool:
        return False

    def __call__(self, packed: PackedDrafts, p: Tensor, coins: Seq[Coins]) -> list[Verdict]:
        """The rule's own verdicts."""
        return self.rule(packed, p, coins)


def sampled_distribution_is_the_targets(
    subject: Subject,
    *,
    num_texts: int = 360,
    rule: Verifier | None = None,
    length: int | None = None,
    asked: Request = ASKED,
) -> None:
    """Chi-square and total variation of `num_texts` texts, and the power check. Wants a vocabulary of at most 8.

    Power: a rule that keeps every guess is noticed. Where guesses are drawn, it may change too little to be seen (their
    q may be nearly p); then a rule must be noticed that bends the extra token too.

    `rule`: in place of `auto`; one that couples without a seed keeps its noise. `length`: tokens of a text; None: as
    the drafter needs. `asked`: the request that every text answers, under a seed of its own.
    """
    rule = rule or Auto()
    length = length or (LONGER if subject.row.late else LENGTH)
    honest = sample(subject, rule if rule.couples(asked) else Uncoupled(rule), num_texts, length, asked)
    require(
        honest.passes,
        f"{subject.row.name}: sampled texts do not have the target's distribution (p={honest.p_value:.2g}, "
        f"TV={honest.tv:.3f}, noise up to {honest.tv_bound:.3f}, {honest.impossible} impossible tokens); "
        "is q the distribution that the children were really drawn from, and None for deterministic guesses?",
    )
    num_certain = 0

    def keep_all(case: Case) -> Verdict:
        nonlocal num_certain
        num_certain += case.q is None and bool(case.tree.children[0])
        return accept_all(case)

    name, few = subject.row.name, num_texts // 2
    if sample(subject, PerDraft(keep_all), few, length, asked).passes:
        require(
            num_certain < CERTAIN * few,
            f"{name}: a rule that keeps every guess went unnoticed, so the test above says little; do guesses that "
            "were drawn come with their q?",
        )
        bent = sample(subject, PerDraft(_bend), num_texts, length, asked)
        require(not bent.passes, f"{name}: a biased rule went unnoticed, so the test above says little")


def sample(
    subject: Subject, rule: Verifier, num_texts: int, length: int = LENGTH, asked: Request = ASKED
) -> SampledDistribution:
    """Write texts of one request under `rule`, and judge their distribution."""
    engine = subject.engine(verifier=rule, depth=length)
    settings = [replace(asked.params, max_tokens=length, seed=seed) for seed in range(num_texts)]
    outcomes = run(engine, [replace(asked, params=params) for params in settings])
    texts = [tuple(outcome.seq.output) for outcome in outcomes]
    contexts = sorted({text[:i] for text in texts for i in range(len(text))})
    rows = {context: i for i, context in enumerate(contexts)}
    counts = torch.zeros(len(contexts), subject.vocab_size, dtype=torch.float64)
    for text in texts:
        for i, token in enumerate(text):
            counts[rows[text[:i]], token] += 1
    start = engine.prepare(replace(asked, params=settings[0]))  # as all texts but for the seed, which no warp reads
    prompt = asked.prompt_token_ids
    distributions = torch.stack(
        [
            warp_nodes(start, subject.next_logits([*prompt, *context])[None], [list(context)])[0].double()
            for context in contexts
        ]
    )
    return judge_counts(counts, distributions, sum(outcome.stats.num_steps for outcome in outcomes))


def _bend(case: Case) -> Verdict:
    """Keep the first children to the end, then draw from a distribution that is far too sharp."""
    return accept_all(replace(case, p=case.p**3))
