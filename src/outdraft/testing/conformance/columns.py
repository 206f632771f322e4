"""The six assertions of the matrix. Each takes a recipe's bench and raises if it does not hold.

Under a lossy rule there is no greedy identity and no law to keep; the other four columns are asked of it too, as far as
they do not compare texts with plain decoding's.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from outdraft.core.params import SamplingParams
from outdraft.core.request import Request
from outdraft.testing.audit import require
from outdraft.testing.conformance.spoiled import Spoiled
from outdraft.testing.conformance.stand import RecipeSubject
from outdraft.testing.contract import sampled_law_is_the_targets
from outdraft.testing.contract.budgets import budget_zero_is_plain
from outdraft.testing.contract.ground import GREEDY, PENALISED, SEEDED, agrees, requests
from outdraft.testing.contract.upkeep import cache_equals_recompute
from outdraft.testing.subject import Outcome, run

LAW_TEXTS = 300  # of three tokens over a vocabulary of 7
ORDERS = ((0, 1, 2, 3, 4), (4, 2, 0, 3, 1), (3, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A recipe twice: over 61 tokens for texts, over 7 for laws."""

    texts: RecipeSubject
    laws: RecipeSubject

    @property
    def lossless(self) -> bool:
        """What the rule says of itself."""
        return self.texts.rule.lossless


def greedy_identity(bench: Bench) -> None:
    """Greedy ids are plain decoding's, with and without penalties."""
    for params in (GREEDY, PENALISED):
        for outcome in run(bench.texts.engine(), requests(params)):
            agrees(bench.texts, outcome, bench.texts.oracle(outcome.seq.request), "greedy")


def sampled_law(bench: Bench) -> None:
    """Unseeded texts have the target's law; a biased rule in the rule's place is noticed."""
    sampled_law_is_the_targets(bench.laws, num_texts=LAW_TEXTS, rule=bench.laws.rule)


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


def useless_draft(bench: Bench) -> None:
    """Every guess replaced by a wrong one: the text stays, and no more passes than tokens are made."""
    subject = bench.texts
    engine = subject.engine()
    engine.parts = replace(engine.parts, drafter=Spoiled(engine.parts.drafter, subject.vocab_size))
    for outcome in run(engine, requests(GREEDY)):
        if bench.lossless:
            agrees(subject, outcome, subject.oracle(outcome.seq.request), "with spoiled guesses")
        steps, tokens = outcome.stats.num_steps, outcome.stats.num_tokens
        require(steps <= tokens, f"{steps} target passes for {tokens} tokens")


def budget_zero(bench: Bench) -> None:
    """With a budget of 0, from the policy or from the request, nothing is offered and the text is plain decoding's."""
    budget_zero_is_plain(bench.texts)


COLUMNS: tuple[tuple[str, Callable[[Bench], None], bool], ...] = (  # heading, check, asked of lossy rules too
    ("greedy identity", greedy_identity, False),
    ("sampled law", sampled_law, False),
    ("ragged batch", ragged_batch, True),
    ("cache audit", cache_audit, True),
    ("useless draft", useless_draft, True),
    ("budget 0", budget_zero, True),
)


def count_drafts(bench: Bench) -> tuple[int, int]:
    """(drafted, accepted) tokens of a text that repeats itself: that the checks saw guesses at all."""
    prompt = (5, 6, 7, 8) * 4
    ask = Request(prompt_token_ids=prompt, params=SamplingParams(max_tokens=40))
    outcome: Outcome = run(bench.texts.engine(), [ask])[0]
    return outcome.stats.num_draft_tokens, outcome.stats.num_accepted_tokens


def make_bench(recipe_subject: Callable[[Path, int], RecipeSubject], directory: Path) -> Bench:
    """Both subjects, each with a directory of its own for its stand-ins. `recipe_subject`: (directory, vocabulary)."""
    made = {}
    for name, vocab_size in (("texts", 61), ("laws", 7)):
        own = directory / name
        own.mkdir(parents=True)
        made[name] = recipe_subject(own, vocab_size)
    return Bench(**made)
