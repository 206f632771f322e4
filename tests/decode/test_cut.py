"""A policy is asked once how much of its drafts is verified, and not about those whose first nodes are no guess."""

from dataclasses import replace

import torch

from outdraft.core.draft import chain
from outdraft.core.policy import Budget
from outdraft.decode.forced import undrafted
from outdraft.decode.guesses import _cut


def test_what_can_be_cut_is_asked_about_at_once():
    asked = []

    def cut(seqs, drafts):
        asked.append(list(seqs))
        return [2] * len(drafts)

    whole = chain([1, 2, 3])
    drafts = [
        whole,
        chain([1]),
        replace(whole, embeds=torch.zeros(3, 4)),
        replace(whole, mask=torch.ones(3, 3, dtype=torch.bool)),
        undrafted([1, 2]),
        chain([4, 5, 6, 7]),
        whole,
    ]
    budgets = [Budget(depth=3, cut=cut)] * 6 + [Budget(depth=3)]
    found = _cut(list(range(7)), budgets, drafts)
    assert asked == [[0, 5]] and [one.num_nodes for one in found] == [2, 1, 3, 3, 2, 2, 3]
    assert all(one is other for one, other in zip(found[1:5], drafts[1:5], strict=True))
