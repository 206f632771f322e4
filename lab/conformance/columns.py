"""The six assertions of the matrix. Each takes a recipe's bench and raises if it does not hold.

Under a lossy rule there is no greedy identity and no distribution to keep; the other four columns are asked of it too,
as far as they do not compare texts with plain decoding's.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from lab.conformance.spoiled import Spoiled
from lab.conformance.stand import RecipeSubject
from lab.conformance.tally import Tally
from outdraft.core.drafter import inner
from outdraft.testing.audit import AuditedTarget, require
from outdraft.testing.contract import sampled_distribution_is_the_targets
from outdraft.testing.contract.budgets import budget_zero_is_plain
from outdraft.testing.contract.distribution import LONGER
from outdraft.testing.contract.ground import GREEDY, PENALISED, SEEDED, agrees, requests
from outdraft.testing.contract.upkeep import cache_equals_recompute
from outdraft.testing.subject import run

DISTRIBUTION_TEXTS = 300  # over a vocabulary of 7
VOCABULARIES = {"texts": 61, "distributions": 7}  # of the tiny targets
LEFT_ALONE = "left alone"
ORDERS = ((0, 1, 2, 3, 4), (4, 2, 0, 3, 1), (3, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A recipe twice: over 61 tokens, or on a target with a trained head, for texts; over 7 for distributions."""

    texts: RecipeSubject
    distributions: RecipeSubject

    @property
    def lossless(self) -> bool:
        """What the rule says of itself."""
        return self.texts.rule.lossless

    @property
    def tally(self) -> Tally:
        """What both have seen since `reset`."""
        return self.texts.tally.plus(self.distributions.tally)

    def reset(self) -> None:
        self.texts.tally.reset()
        self.distributions.tally.reset()


def greedy_identity(bench: Bench) -> None:
    """Greedy ids are plain decoding's, with and without penalties."""
    for params in (GREEDY, PENALISED):
        for outcome in run(bench.texts.engine(), requests(params)):
            agrees(bench.texts, outcome, bench.texts.oracle(outcome.seq.request), "greedy")


def sampled_distribution(bench: Bench) -> None:
    """Sampled texts have the target's distribution; a biased rule in the rule's place is noticed."""
    subject = bench.distributions
    works_beside = any(one.traits.ahead for one in inner(subject.engine().parts.drafter))
    sampled_distribution_is_the_targets(
        subject, num_texts=DISTRIBUTION_TEXTS, rule=subject.rule, length=LONGER if works_beside else None
    )


def ragged_batch(bench: Bench) -> None:
    """Greedy texts, and seeded ones under a rule that couples, are the same alone and in any company and order."""
    subject = bench.texts
    for params in (GREEDY, SEEDED):
        batch = requests(params)
        if not params.greedy and not subject.rule.couples(batch[0]):
            continue
        alone = [run(subject.engine(), [request])[0].seq.output for request in batch]
        for order in ORDERS:
            outcomes = run(subject.engine(), [batch[i] for i in order])
            for outcome, i in zip(outcomes, order, strict=True):
                agrees(subject, outcome, alone[i], f"in a batch, order {order}")


def cache_audit(bench: Bench) -> None:
    """After every commit the target's cache is what one fresh pass over the same tokens leaves behind."""
    cache_equals_recompute(bench.texts)


def useless_draft(bench: Bench) -> str:
    """Every guess replaced by a wrong one: the text stays, and every pass after the prompt's still brings a token.

    The requests run one at a time, so that the target's passes are one request's. Returns how many guesses were
    replaced, or that none could be.
    """
    subject = bench.texts
    engine = subject.engine()
    spoiled = Spoiled(engine.parts.drafter, subject.vocab_size)
    engine.parts = replace(engine.parts, drafter=spoiled)
    target = cast(AuditedTarget, engine.parts.target)
    for request in requests(GREEDY):
        before = target.num_passes
        outcome = run(engine, [request])[0]
        if bench.lossless:
            agrees(subject, outcome, subject.oracle(request), "with spoiled guesses")
        passes, stats = target.num_passes - before, outcome.stats
        most = stats.num_tokens + max(0, stats.num_prompt_steps - 1)  # the pass that ends the prompt brings one too
        require(passes <= most, f"{passes} target passes for {stats.num_tokens} tokens")
    return str(spoiled.num_replaced or (LEFT_ALONE if spoiled.num_left_alone else ""))


def budget_zero(bench: Bench) -> None:
    """With a budget of 0, from the policy or from the request, nothing is offered and the text is plain decoding's."""
    budget_zero_is_plain(bench.texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One assertion. `of_lossy`: asked of lossy rules too; `drafts`: it must see guesses; `accepts`: and accepted ones.

    What `check` returns stands beside the tick; `LEFT_ALONE` stands in its place.
    """

    heading: str
    check: Callable[[Bench], str | None]
    of_lossy: bool = True
    drafts: bool = True
    accepts: bool = True


COLUMNS = (
    Column(heading="greedy identity", check=greedy_identity, of_lossy=False),
    Column(heading="sampled distribution", check=sampled_distribution, of_lossy=False),
    Column(heading="ragged batch", check=ragged_batch),
    Column(heading="cache audit", check=cache_audit),
    Column(heading="useless draft", check=useless_draft, accepts=False),
    Column(heading="budget 0", check=budget_zero, drafts=False, accepts=False),
)


def make_bench(recipe_subject: Callable[[Path, int], RecipeSubject], directory: Path) -> Bench:
    """Both subjects, each with a directory of its own for its stand-ins. `recipe_subject`: (directory, vocabulary)."""
    made = {}
    for name, vocab_size in VOCABULARIES.items():
        own = directory / name
        own.mkdir(parents=True)
        made[name] = recipe_subject(own, vocab_size)
    return Bench(**made)
