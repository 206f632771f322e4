"""A recipe on the bench: its own drafter, rule and policy over a tiny random target.

A recipe's roles are filled by tiny models: the drafter's rows say by which. Its grounds come first, rows on which it is
mostly right; among them, as among the others, the one whose label is the recipe's name counts with its options, else
the stand-ins alone of the row "twin" or of the first. The row's target and documents come with it. Data in: a recipe
and rows; data out: a `Subject` that every contract check can run.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.conformance.tally import Counted, Tally
from outdraft.core.policy import Policy
from outdraft.core.registry import find, make_options
from outdraft.core.request import Request
from outdraft.core.verifier import Verifier
from outdraft.engine.assembly.assemble import arms_of
from outdraft.engine.loop import Engine
from outdraft.engine.naming.recipe import Recipe
from outdraft.engine.naming.roles import without_optional
from outdraft.models.networks.base import Decoder
from outdraft.options.errors import ConfigError
from outdraft.testing.contract.distribution import Uncoupled
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject


class RecipeSubject(Subject):
    """Engines have the recipe's rule and policy unless a check brings its own; depth 0 is a budget of nothing."""

    def __init__(self, recipe: Recipe, row: DrafterRow, directory: Path, *, vocab_size: int = 61) -> None:
        super().__init__(row, directory, vocab_size=vocab_size)
        rule, self._pacing = find("verifier", recipe.verifier.name), find("policy", recipe.policy.name)
        rule_options = make_options(rule, recipe.verifier.options)
        self.rule: Verifier = rule.build(rule_options)
        self._soft, self._reads_confidence = rule.soft(rule_options), rule.reads_confidence(rule_options)
        self._prefers_drawn = rule.prefers_drawn
        self._pace: Any = make_options(self._pacing, recipe.policy.options)
        self._oracles: dict[str, list[int]] = {}
        self.tally = Tally()

    def engine(
        self, *, verifier: Verifier | None = None, policy: Policy | None = None, depth: int = 4, **others: Any
    ) -> Engine:
        """An engine as the recipe says."""
        engine = super().engine(verifier=verifier or self.rule, policy=policy, depth=depth, **others)
        if policy is None and depth:
            policy = self._pacing.build(self._pace, arms_of(self.method, engine.parts.drafter))
        soft = self._soft and verifier is None
        policy = policy or engine.parts.policy
        judge = verifier.rule if isinstance(verifier, Uncoupled) else verifier or self.rule
        if judge is self.rule:  # not a fault that a check has planted
            policy = Counted(policy, self.tally)
        held = replace(engine.parts.held, prefers_drawn=self._prefers_drawn)
        engine.parts = replace(
            engine.parts, policy=policy, soft=soft, reads_confidence=self._reads_confidence, held=held
        )
        return engine

    def oracle(self, request: Request, *, eos: frozenset[int] = frozenset(), max_len: int | None = None) -> list[int]:
        """Plain decoding of `request`, computed once."""
        key = repr((request, eos, max_len))
        if key not in self._oracles:
            self._oracles[key] = super().oracle(request, eos=eos, max_len=max_len)
        return self._oracles[key]


def row_of(recipe: Recipe, rows: Seq[DrafterRow]) -> DrafterRow:
    """The row that says how the recipe runs on a tiny target. Raises `ConfigError` if its drafter has none.

    `rows`: of several with one label the first counts, so grounds stand before the contract suite's own.
    """
    mine = [row for row in rows if row.drafter == recipe.drafter.name]
    if not mine:
        raise ConfigError(f"recipe {recipe.name!r}: drafter {recipe.drafter.name!r} has no row in tests/contracts/rows")
    by_label = {row.label: row for row in reversed(mine)}
    row = by_label.get(recipe.name) or by_label.get("twin") or mine[0]
    own = row.options if row.label == recipe.name else {}

    def side(target: Decoder, directory: Path) -> Mapping[str, Any]:
        options = without_optional(recipe.drafter.name, recipe.drafter.options)
        return {**options, **row.side(target, directory), **own}

    return replace(row, label=recipe.name, side=side, options={})
