"""What a round on a GPU brings back at once is what the host would have read piece by piece."""

from dataclasses import replace

import pytest
import torch

from outdraft.core.draft import HostTree, chain, host_tree
from outdraft.core.packing import PackedDrafts, pack
from outdraft.options.errors import NumericsError
from outdraft.sampling.warp import poisoned_one_hot
from outdraft.verify.shared.case import read_round


class Elsewhere:
    """Stands for tokens on a device: it counts how often it was read."""

    def __init__(self, tokens: list[int]) -> None:
        self.values, self.num_reads = tokens, 0
        self.device = torch.device("meta")

    def tolist(self) -> list[int]:
        self.num_reads += 1
        return self.values


def far_tree(tokens: list[int]) -> tuple[HostTree, Elsewhere]:
    near, source = host_tree(chain(tokens)), Elsewhere(tokens)
    return HostTree(source, parents=near.parents, children=near.children, depths=near.depths), source


def packed_two(sequence) -> tuple[PackedDrafts, list[Elsewhere]]:
    """Two chains whose trees do not know their tokens yet."""
    seqs = [sequence([1, 2, 3], 0), sequence([4, 5], 1)]
    for seq in seqs:
        seq.num_cached = len(seq.tokens) - 1
    packed = pack(seqs, [chain([3, 7, 8]), chain([5, 9])])
    made = [far_tree([3, 7, 8]), far_tree([5, 9])]
    return replace(packed, trees=tuple(tree for tree, _ in made)), [source for _, source in made]


@pytest.fixture
def sequence():
    from outdraft.core.request import Request
    from outdraft.core.sequence import Sequence
    from outdraft.options.params import SamplingParams
    from outdraft.sampling.coins import verifier_coins
    from outdraft.sampling.draft_coins import draft_coins

    def make(tokens: list[int], number: int) -> Sequence:
        return Sequence(
            id=number,
            request=Request(prompt_token_ids=tuple(tokens), params=SamplingParams()),
            tokens=tokens,
            prompt_len=len(tokens),
            max_len=64,
            seed=0,
            coupled=False,
            eos_token_ids=frozenset(),
            coins=verifier_coins,
            draft_coins=draft_coins,
        )

    return make


def test_best_tokens_and_drafted_ones_come_together(sequence):
    packed, sources = packed_two(sequence)
    p = torch.softmax(torch.randn(5, 11, generator=torch.Generator().manual_seed(1)), -1)
    assert read_round(packed, p) == p.argmax(-1).tolist()
    assert [tree.tokens for tree in packed.trees] == [[3, 7, 8], [5, 9]]
    assert [source.num_reads for source in sources] == [0, 0], "no tree read by itself"


def test_a_distribution_that_is_not_finite_is_named(sequence):
    packed, _ = packed_two(sequence)
    p = torch.full((5, 11), 1 / 11)
    p[4, 2] = float("nan")
    with pytest.raises(NumericsError, match="node 1 of sequence 1"):
        read_round(packed, p)


def test_a_tree_asked_too_early_reads_its_own_tokens_once():
    tree, source = far_tree([1, 2])
    assert tree.tokens == tree.tokens == [1, 2] and source.num_reads == 1


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_unseen_logits_poison_their_greedy_distribution(bad):
    logits = torch.randn(3, 9, generator=torch.Generator().manual_seed(2))
    clean = poisoned_one_hot(logits, logits.amax(-1))
    assert torch.equal(clean, torch.nn.functional.one_hot(logits.argmax(-1), 9).float())
    logits[1, 4] = bad
    distribution = poisoned_one_hot(logits, logits.amax(-1))
    assert not distribution.sum().isfinite() and distribution[[0, 2]].isfinite().all()
