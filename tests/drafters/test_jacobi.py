"""Jacobi: never more passes than tokens, the same text from every fill, and as many passes as the iteration by hand."""

from types import SimpleNamespace

import pytest
import torch
from drafters.drafting import make, sequence, states, write

from outdraft.core.draft import chain
from outdraft.core.drafter import Seen
from outdraft.core.policy import Budget
from outdraft.core.verdict import Verdict
from outdraft.decode.fit import first_nodes
from outdraft.options.errors import ConfigError
from tests.helpers.table_target import TableTarget

FILLS = {"pad": {"fill": "constant"}, "random": {"fill": "random"}, "copy": {"fill": "prompt"}}


def port(vocab_size):
    return SimpleNamespace(vocab_size=vocab_size)


def successor_table(successors):
    """A target whose best next token depends on the last one alone."""
    target = TableTarget(vocab_size=len(successors), order=1, max_len=4096)
    target.table = torch.zeros(len(successors), len(successors), dtype=torch.float64)
    target.table[range(len(successors)), successors] = 9.0
    return target


def passes_by_hand(successors, pending, fills, num_tokens):
    """Jacobi iteration over the whole text as one growing guess: passes until `num_tokens` are settled."""
    window, passes = list(fills), 0
    while num_tokens > 0:
        outputs = [successors[token] for token in (pending, *window)]
        settled = 0
        while settled < len(window) and window[settled] == outputs[settled]:
            settled += 1
        pending, num_tokens, passes = outputs[settled], num_tokens - settled - 1, passes + 1
        window = outputs[settled + 1 :] + [fills[0]] * settled
    return passes


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("vocab_size", [3, 23])
def test_every_fill_gives_the_same_text_in_no_more_passes_than_tokens(order, vocab_size):
    target = TableTarget(vocab_size=vocab_size, order=order, max_len=4096)
    prompt = [1, 2, 0, 2]
    plain = sequence(prompt)
    write([plain], target, make("none"))
    for fill in FILLS.values():
        drafter = make("jacobi", port(vocab_size), **fill)
        seq = sequence(prompt)
        run = write([seq], target, drafter, k=16)
        assert seq.output == plain.output
        assert run.passes <= len(seq.output)
        assert all(not kept for kept in states(drafter).values())


@pytest.mark.parametrize("window", [1, 4, 8, 16])
def test_a_target_that_forgets_converges_in_the_predicted_passes(window):
    """Halving 32 ids forgets its start in 5 steps: 5 passes of one token each, then the whole window is right.

    After that the window is fill tokens again.
    """
    target = successor_table([token // 2 for token in range(32)])
    seq = sequence([31], max_tokens=2 * (5 + window + 1))
    run = write([seq], target, make("jacobi", port(32), window=window, fill="constant", fill_token=31), k=window)
    assert [len(event.tokens) for event in run.events] == 2 * [1, 1, 1, 1, 1, window + 1]


@pytest.mark.parametrize("seed", range(6))
def test_passes_are_those_of_the_iteration_by_hand(seed):
    """Any target that looks one token back; also one that never forgets, where no guess comes right before its turn."""
    successors = torch.randint(0, 12, (12,), generator=torch.Generator().manual_seed(seed)).tolist()
    for table in (successors, [(token + 1) % 12 for token in range(12)]):
        seq = sequence([3], max_tokens=40)
        drafter = make("jacobi", port(12), window=6, fill="constant", fill_token=7)
        run = write([seq], successor_table(table), drafter, k=6)
        assert run.passes == passes_by_hand(table, 3, [7] * 6, 40)


def test_what_the_budget_hides_waits_in_the_window():
    target = TableTarget(vocab_size=9, order=1, max_len=4096)
    drafter = make("jacobi", port(9), window=5, fill="constant", fill_token=4)
    seq = sequence([1, 2])
    drafter.begin([seq])
    assert drafter.propose([seq], [Budget(depth=2)])[0].tokens.tolist() == [2, 4, 4]
    assert drafter.propose([seq], [Budget(depth=9)])[0].tokens.tolist() == [2, 4, 4, 4, 4, 4]
    assert drafter.propose([seq], [Budget(depth=9, nodes=1)])[0].tokens.tolist() == [2, 4]
    assert drafter.propose([seq], [Budget(depth=0)])[0].num_nodes == 1
    drafter._states[seq.id].window = [4, 5, 6, 7, 8]
    draft = drafter.propose([seq], [Budget(depth=2)])[0]
    answers = torch.eye(9)[[0, 1, 3]]  # 0 in the place of 4: that is the next pending token
    seq.tokens.append(0)
    drafter.observe(
        [Seen(seq=seq, start=1, num_committed=1, draft=draft, logits=answers, verdict=Verdict((), 0, False))]
    )
    assert drafter.propose([seq], [Budget(depth=9)])[0].tokens.tolist() == [0, 1, 3, 7, 8, 4]
    plain, short = sequence([1, 2]), sequence([1, 2])
    write([plain], target, make("none"))
    write([short], target, make("jacobi", port(9), window=5), k=2)
    assert short.output == plain.output


@pytest.mark.parametrize("left", [1, 2, 5, 6])
def test_what_is_left_of_a_guess_teaches_as_if_no_more_had_been_shown(left):
    """A policy, a grammar or memory may leave the first nodes of a guess, as another draft."""
    drafter, seq = make("jacobi", port(9), window=5, fill="constant", fill_token=4), sequence([1, 2])
    drafter.begin([seq])
    drafter._states[seq.id].window = [0, 5, 6, 7, 8]
    draft = first_nodes(drafter.propose([seq], [Budget(depth=9)])[0], left)
    answers = torch.eye(9)[[0, 1, 3, 2, 1, 0][:left]]
    path = (1,) if left > 1 else ()  # 0 is right
    seq.tokens += [0, 1][: len(path) + 1]
    verdict = Verdict(path, seq.tokens[-1], bonus=False)
    drafter.observe([Seen(seq=seq, start=1, num_committed=1, draft=draft, logits=answers, verdict=verdict)])
    moved = len(path) + 1
    expected = [*[0, 1, 3, 2, 1, 0][moved:left], *[0, 5, 6, 7, 8][max(left, moved) :]]
    assert drafter._states[seq.id].window[: len(expected)] == expected and len(drafter._states[seq.id].window) == 5


@pytest.mark.parametrize("shown", [True, False])
def test_the_window_moves_on_with_a_text_that_others_guess(shown):
    drafter, seq = make("jacobi", port(9), window=5, fill="constant", fill_token=4), sequence([1, 2])
    drafter.begin([seq])
    drafter._states[seq.id].window = [0, 5, 6, 7, 8]
    if shown:
        drafter.propose([seq], [Budget(depth=9)])
    seq.tokens += [3, 1]
    seen = Seen(
        seq=seq,
        start=1,
        num_committed=2,
        draft=chain([2, 3]),
        logits=torch.eye(9)[[3, 1]],
        verdict=Verdict((1,), 1, False),
    )
    drafter.observe([seen])
    assert drafter._states[seq.id].window == [6, 7, 8, 4, 4]


@pytest.mark.parametrize(("fill", "among"), [("prompt", {1, 2, 4}), ("random", set(range(9))), ("constant", {5})])
def test_fill_tokens(fill, among):
    drafter, seq = make("jacobi", port(9), window=64, fill=fill, fill_token=5), sequence([1, 2, 4])
    drafter.begin([seq])
    assert set(drafter._states[seq.id].window) == among


@pytest.mark.parametrize("bad", [{"window": 0}, {"fill": "zeros"}, {"fill_token": 9}, {"fill_token": -1}])
def test_bad_options(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        make("jacobi", port(9), **bad)
