"""Which rule judges what, and pairs of target and drafter that are hard in different ways."""

import torch

from outdraft.core.registry import find
from tests.helpers.tables import Table, blend, random_table

RULES = ("auto", "block", "coupled", "gated", "multi_draft", "rejection", "sequential", "traversal")
CHAINS = {"nothing": (-1,), "one": (-1, 0), "three": (-1, 0, 1, 2)}
TREES = {
    "wide": (-1, 0, 0, 0),
    "two levels": (-1, 0, 0, 1, 1, 2),
    "out of order": (-1, 0, 1, 0, 1, 3, 3),
    "long and short": (-1, 0, 0, 1, 3),
}
SHAPES = CHAINS | TREES


def rule(name: str, **options):
    method = find("verifier", name)
    return method.build(method.options(**options))


def judged_by(name: str) -> dict[str, tuple[int, ...]]:
    return SHAPES if "tree" in find("verifier", name).judges else CHAINS


def support(table: Table, tokens: list[int]) -> Table:
    rows = torch.zeros_like(table.rows)
    rows[:, tokens] = table.rows[:, tokens]
    return Table(rows / rows.sum(-1, keepdim=True), table.order)


def pairs() -> dict[str, tuple[Table, Table]]:
    """Target and drafter tables over 4 tokens that look 2 back."""
    p, q = random_table(4, 2, 1), random_table(4, 2, 2)
    sharp = random_table(4, 2, 3, spread=4)
    return {
        "random": (p, q),
        "similar": (p, blend(p, q, 0.8)),
        "peaked": (sharp, random_table(4, 2, 4, spread=4)),
        "q has zeros": (p, random_table(4, 2, 5, top_k=2)),
        "p has zeros": (random_table(4, 2, 6, top_k=2), q),
        "both have zeros": (random_table(4, 2, 7, top_k=3), random_table(4, 2, 8, top_k=2)),
        "both sure of one": (random_table(4, 2, 9, top_k=1), random_table(4, 2, 10, top_k=1)),
        "identical": (p, p),
        "identical but for rounding": (p, Table(p.rows * (1 + 1e-15), 2)),
        "disjoint": (support(p, [0, 1]), support(q, [2, 3])),
        "drafter out of its depth": (support(p, [0, 1]), support(q, [1, 2, 3])),
    }


PAIRS = pairs()
