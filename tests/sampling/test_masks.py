"""Masks say which tokens may be written, at every node by its own path; locally typical sampling equals the paper's."""

import pytest
import torch

from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.chains.grow import chooses_natively
from outdraft.drafters.shared.choose import takes_plain_argmax
from outdraft.options.params import SamplingParams
from outdraft.sampling.coins import verifier_coins
from outdraft.sampling.doubt import sure_decisions
from outdraft.sampling.draft_coins import draft_coins
from outdraft.sampling.masks import allows
from outdraft.sampling.typical import typical_rows
from outdraft.sampling.warp import edit_nodes, warp_nodes
from outdraft.testing.contract.masked import EveryOther

VOCAB = 12


def sequence(output=(), *, constraint=None, eos=(0,), **params) -> Sequence:
    seq = Sequence(
        id=0,
        request=Request(prompt_token_ids=(7, 8), params=SamplingParams(**params)),
        tokens=[7, 8],
        prompt_len=2,
        max_len=99,
        seed=1,
        coupled=True,
        eos_token_ids=frozenset(eos),
        coins=verifier_coins,
        draft_coins=draft_coins,
        prompt_ids=frozenset((7, 8)),
        constraint=constraint,
    )
    for token in output:
        seq.extend(token)
    return seq


def support(seq: Sequence, *paths) -> list[set[int]]:
    rows = torch.randn(len(paths), VOCAB, generator=torch.Generator().manual_seed(0))
    return [set(row.nonzero()[:, 0].tolist()) for row in warp_nodes(seq, rows, [list(path) for path in paths])]


ALL = set(range(VOCAB))


def test_banned_and_allowed_tokens():
    assert support(sequence(temperature=1.0, banned_token_ids=[3, 5]), (), (3,)) == [ALL - {3, 5}] * 2
    assert support(sequence(temperature=1.0, allowed_token_ids=[3, 5, 6], banned_token_ids=[5]), ()) == [{3, 6}]
    assert support(sequence(temperature=1.0, allowed_token_ids=[3, 5], logit_bias={5: -torch.inf}), ()) == [{3}]
    assert support(sequence(temperature=1.0, allowed_token_ids=[1], eos=(0,)), ()) == [{1}]  # no end either


def test_a_bad_word_is_masked_at_its_last_token_only():
    seq = sequence((4, 1), temperature=1.0, bad_words=[[1, 2, 3], [2, 3, 4], [6], [1, 9]])
    wanted = {(): {6, 9}, (2,): {6, 3}, (2, 3): {6, 4}, (5,): {6}, (1,): {6, 9}, (1, 2): {6, 3}, (2, 3, 1): {6, 9}}
    assert support(seq, *wanted) == [ALL - banned for banned in wanted.values()]


def test_a_bad_word_begins_in_the_output_and_not_in_the_prompt():
    assert support(sequence((), temperature=1.0, bad_words=[[8, 2]]), (), (8,)) == [ALL, ALL - {2}]
    assert support(sequence((8,), temperature=1.0, bad_words=[[8, 2], [7, 8, 3]]), ()) == [ALL - {2}]


def test_a_forced_prefix_is_one_token_at_each_position_and_then_nothing():
    seq = sequence((3,), temperature=1.0, forced_prefix=[3, 4, 4, 9])
    assert support(seq, (), (4,), (5,), (4, 4), (4, 4, 9)) == [{4}, {4}, {4}, {9}, ALL]
    assert seq.edits_logits and seq.depends_on_history
    done = sequence((3, 4, 4, 9), temperature=1.0, forced_prefix=[3, 4, 4, 9])
    assert not done.edits_logits and not done.depends_on_history and support(done, ()) == [ALL]


def test_no_end_before_min_tokens_beside_other_masks():
    seq = sequence((1,), temperature=1.0, min_tokens=3, stop_token_ids=[5], bad_words=[[1, 2]])
    assert support(seq, (), (4,), (4, 1)) == [ALL - {0, 5, 2}, ALL - {0, 5}, ALL - {2}]


def test_a_constraint_is_asked_by_path():
    constraint = EveryOther(VOCAB)
    seq = sequence((4, 1), temperature=1.0, constraint=constraint)
    paths = [(), (3,), (3, 2)]
    wanted = [set(constraint.allowed(path).nonzero()[:, 0].tolist()) for path in paths]
    assert support(seq, *paths) == wanted and wanted[0] != wanted[1]


def test_allows_agrees_with_the_mask():
    settings = dict(bad_words=[[1, 2], [6]], banned_token_ids=[3], min_tokens=3)
    seq = sequence((4, 1), temperature=1.0, constraint=EveryOther(VOCAB), **settings)
    assert {token for token in range(VOCAB) if allows(seq, token, VOCAB)} == support(seq, ())[0]


def test_a_greedy_request_takes_the_best_of_what_is_left():
    logits = torch.arange(VOCAB, dtype=torch.float32)[None]
    assert int(warp_nodes(sequence(banned_token_ids=[11, 10]), logits).argmax()) == 9


EDITS = [
    {"banned_token_ids": [3]},
    {"bad_words": [[3]]},
    {"allowed_token_ids": [3, 4]},
    {"forced_prefix": [3]},
    {"logit_bias": {3: 1.0}},
    {"min_tokens": 2},
    {"presence_penalty": 1.0},
    {"constraint": EveryOther(VOCAB)},
]


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: next(iter(edit)))
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_token_is_chosen_from_raw_logits_where_they_are_edited(edit, temperature):
    """The kernels and the recorded passes know no edits."""
    assert chooses_natively(sequence(temperature=temperature), "match")
    assert takes_plain_argmax(sequence(), "match")
    seq = sequence(temperature=temperature, **edit)
    assert not chooses_natively(seq, "match") and not takes_plain_argmax(seq, "greedy")


def test_the_kernels_draw_no_typical_tokens():
    assert not chooses_natively(sequence(temperature=1.0, typical_p=0.9), "match")
    assert chooses_natively(sequence(temperature=1.0, typical_p=0.9), "greedy")
    assert chooses_natively(sequence(typical_p=0.9), "match")  # greedy text knows no truncation


def test_a_drafter_without_an_allowed_token_goes_on_unmasked():
    """Its logits may lack most of the vocabulary; a target in its place is an error."""
    logits = torch.full((1, VOCAB), -torch.inf)
    logits[0, 2:5] = torch.tensor([1.0, 2.0, 3.0])
    seq = sequence(temperature=1.0, allowed_token_ids=[9])
    assert warp_nodes(seq, logits, [[]], guesses=True)[0].nonzero()[:, 0].tolist() == [2, 3, 4]
    assert edit_nodes(seq, logits, [[]], guesses=True).equal(logits)
    with pytest.raises(Exception, match="leave no token to choose"):
        warp_nodes(seq, logits, [[]])


@pytest.mark.parametrize("mass", [0.05, 0.2, 0.5, 0.9, 0.99])
def test_typical_equals_transformers(mass):
    hf = pytest.importorskip("transformers.generation.logits_process")
    logits = torch.randn(40, 30, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2
    logits[:, 4] = -torch.inf  # masked before
    expected = torch.softmax(hf.TypicalLogitsWarper(mass)(None, logits.clone()), -1)
    assert torch.allclose(warp_nodes(sequence(temperature=1.0, typical_p=mass), logits), expected, atol=1e-12)


def test_typical_by_hand():
    """H = 1.168: off by 0.25, 0.22, 0.73 and 1.83, so the second token stands first, then the first."""
    distribution = torch.tensor([[0.4, 0.25, 0.15, 0.05, 0.15]])
    kept = [typical_rows(distribution, mass)[0] for mass in (0.1, 0.3, 0.6, 0.97)]
    assert [one.nonzero()[:, 0].tolist() for one in kept] == [[1], [1, 2, 4], [0, 1, 2, 4], [0, 1, 2, 3, 4]]
    assert torch.allclose(kept[1], torch.tensor([0, 0.25, 0.15, 0, 0.15]) / 0.55)


def test_a_mass_that_is_just_reached_is_enough():
    """In bits H = 1.75: off by 0.75, 0.25, 1.25 and 1.25."""
    distribution = torch.tensor([[0.5, 0.25, 0.125, 0.125]])
    assert typical_rows(distribution, 0.25)[0].tolist() == [0, 1, 0, 0]
    assert torch.allclose(typical_rows(distribution, 0.26)[0], torch.tensor([2 / 3, 1 / 3, 0, 0]))


def test_typical_comes_after_top_p():
    """Top-p leaves two tokens; of these the typical one is chosen, which is none of the whole distribution's."""
    logits = torch.log(torch.tensor([[0.55, 0.25, 0.1, 0.1]], dtype=torch.float64))
    both = warp_nodes(sequence(temperature=1.0, top_p=0.6, typical_p=0.1), logits)
    assert both[0].nonzero()[:, 0].tolist() == [0]
    assert warp_nodes(sequence(temperature=1.0, typical_p=0.1), logits)[0].nonzero()[:, 0].tolist() == [1]


def test_a_typical_row_has_the_same_bits_beside_others():
    rows = torch.softmax(torch.randn(7, 5000, generator=torch.Generator().manual_seed(2)), -1)
    together = typical_rows(rows, 0.7)
    assert all(typical_rows(rows[i : i + 1], 0.7)[0].equal(together[i]) for i in range(7))


def test_an_only_token_is_sure():
    """Whatever the logits do: a forced token cannot change."""
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(0))
    for params in ({}, {"temperature": 1.0}, {"temperature": 1.0, "typical_p": 0.3, "top_p": 0.5}):
        assert sure_decisions(sequence(forced_prefix=[3], **params), logits, [[]], 5.0) == [True]
        assert sure_decisions(sequence(**params), logits, [[]], 50.0) == [False]


def test_a_masked_rival_leaves_no_doubt():
    logits = torch.full((1, VOCAB), -9.0)
    logits[0, 5], logits[0, 6] = 3.0, 2.99
    assert sure_decisions(sequence(), logits, [[]], 0.1) == [False]
    assert sure_decisions(sequence(banned_token_ids=[6]), logits, [[]], 0.1) == [True]


def test_long_lists_of_ids_are_read_once_for_a_sequence(monkeypatch):
    seq = sequence(temperature=1.0, min_tokens=3, stop_token_ids=[4, 5], eos=(0,), ignore_eos=True)
    assert seq.ends == {4, 5}
    assert support(seq, (), (3,), (3, 3, 3)) == [ALL - {0, 4, 5}] * 2 + [ALL]
    monkeypatch.delattr(torch, "ones")
    assert support(seq, ()) == [ALL - {0, 4, 5}]
