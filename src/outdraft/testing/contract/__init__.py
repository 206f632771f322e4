"""The contract suite of a drafter: one function an assertion, each takes a `Subject` and raises if it does not hold.

    row = DrafterRow(drafter="my_package.my_module:METHOD")
    for check in CHECKS:
        check(Subject(row, empty_directory))
    sampled_distribution_is_the_targets(Subject(row, another_empty_directory, vocab_size=7))

Each of `CHECKS` wants a vocabulary of 61, the last one a vocabulary of at most 8.

Losslessness is two assertions, never a rate: the same greedy (and seeded) ids as `decode.reference`, which knows no
cache, batch or draft; and the exact distribution of unseeded samples, tested by chi-square together with its power.
"""

from collections.abc import Callable

from outdraft.testing.contract.budgets import budget_is_respected, budget_zero_is_plain, counters_add_up
from outdraft.testing.contract.crowds import crowds_write_the_same
from outdraft.testing.contract.distribution import sampled_distribution_is_the_targets
from outdraft.testing.contract.ends import context_end, ends_inside_a_run
from outdraft.testing.contract.forced import forced_tokens_write_the_same
from outdraft.testing.contract.guided import guided_requests_write_the_same
from outdraft.testing.contract.identity import (
    alone_equals_batch,
    bits_do_not_depend_on_the_draft,
    greedy_equals_reference,
    joins_and_cancels,
    seeded_equals_reference,
)
from outdraft.testing.contract.masked import masked_requests_write_the_same
from outdraft.testing.contract.reuse import rows_are_taken_over
from outdraft.testing.contract.upkeep import cache_equals_recompute, leaks_nothing
from outdraft.testing.subject import Subject

CHECKS: tuple[Callable[[Subject], None], ...] = (
    greedy_equals_reference,
    seeded_equals_reference,
    masked_requests_write_the_same,
    forced_tokens_write_the_same,
    guided_requests_write_the_same,
    alone_equals_batch,
    bits_do_not_depend_on_the_draft,
    joins_and_cancels,
    ends_inside_a_run,
    context_end,
    cache_equals_recompute,
    leaks_nothing,
    rows_are_taken_over,
    crowds_write_the_same,
    budget_zero_is_plain,
    budget_is_respected,
    counters_add_up,
)

__all__ = ["CHECKS", "sampled_distribution_is_the_targets"]
