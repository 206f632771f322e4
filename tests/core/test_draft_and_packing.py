"""A draft is a tree with parents first; packing lays certain rows, then the pending node, then the guess."""

import pytest
import torch

from outdraft.core.draft import Draft, Role, chain, host_tree
from outdraft.core.packing import pack
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.options.errors import CapabilityError


def make_sequence(tokens, cached, **fields) -> Sequence:
    return Sequence(
        id=0,
        request=Request(prompt_token_ids=tuple(tokens)),
        tokens=list(tokens),
        prompt_len=len(tokens),
        max_len=99,
        seed=0,
        coupled=False,
        eos_token_ids=frozenset(),
        coins=lambda s: None,
        draft_coins=lambda s: None,
        num_cached=cached,
        **fields,
    )


def tree(parents, roles=None) -> Draft:
    return Draft(
        tokens=torch.arange(10, 10 + len(parents)),
        parents=torch.tensor(parents),
        roles=None if roles is None else torch.tensor(roles),
    )


def test_host_tree_knows_children_depths_and_paths():
    host = host_tree(tree([-1, 0, 1, 1, 0]))
    assert host.children == [[1, 4], [2, 3], [], [], []]
    assert host.depths == [0, 1, 2, 2, 1]
    assert host.path(3) == [1, 3] and host.path(0) == []
    assert not host.is_chain and host_tree(chain([1, 2, 3])).is_chain


def test_probes_are_no_acceptable_children():
    host = host_tree(tree([-1, 0, 0, 2], [Role.VERIFY, Role.VERIFY, Role.PROBE, Role.PROBE]))
    assert host.children == [[1], [], [], []] and host.is_chain


def test_a_parent_after_its_child_is_refused():
    with pytest.raises(CapabilityError, match="node 1 has parent 2"):
        host_tree(tree([-1, 2, 0]))


def test_rows_of_a_mixed_pass():
    reading = make_sequence([1, 2, 3, 4], cached=0)
    decoding = make_sequence([5, 6, 10], cached=2)
    packed = pack([reading, decoding], [chain([4]), tree([-1, 0, 0, 1])])
    assert packed.tokens.tolist() == [1, 2, 3, 4, 10, 11, 12, 13]
    assert packed.positions.tolist() == [0, 1, 2, 3, 2, 3, 3, 4]
    assert packed.nodes.tolist() == [3, 4, 5, 6, 7]
    assert packed.row_starts == (0, 4, 8) and packed.node_starts == (0, 1, 5) and packed.num_certain == (3, 0)


def test_a_chunk_that_ends_before_the_pending_token_has_no_nodes():
    seq = make_sequence(range(10), cached=2)
    packed = pack([seq], [chain([9])], max_chunk=4)
    assert packed.tokens.tolist() == [2, 3, 4, 5] and packed.drafts == (None,) and packed.nodes.numel() == 0
    seq.num_cached = 6
    assert pack([seq], [chain([9])], max_chunk=4).tokens.tolist() == [6, 7, 8, 9]


def test_a_draft_that_hangs_from_another_token_is_refused():
    """Its rows would stand in the cache as the text's."""
    for draft in (chain([8, 1]), Draft(tokens=torch.tensor([], dtype=torch.long), parents=torch.tensor([]))):
        with pytest.raises(CapabilityError, match="node 0 must be the pending token 7"):
            pack([make_sequence([5, 6, 7], cached=2)], [draft])


def test_chain_pads_the_distribution_of_the_last_node():
    draft = chain([1, 2, 3], q=torch.full((2, 5), 0.2))
    assert draft.q is not None and draft.q.shape == (3, 5) and draft.parents.tolist() == [-1, 0, 1]


def test_how_much_of_a_text_a_tree_had_guessed():
    tree = host_tree(Draft(tokens=torch.tensor([9, 1, 2, 3, 4]), parents=torch.tensor([-1, 0, 1, 0, 3])))
    assert [tree.count_right(told) for told in ([1, 2, 5], [3, 4], [3, 2], [2, 1], [])] == [2, 2, 1, 0, 0]
