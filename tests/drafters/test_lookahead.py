"""Lookahead: probes never change what is verified, n-grams ripen, the pool is bounded, repetition pays."""

import pytest
import torch
from drafters.drafting import Reciter, make, sequence, states, write

from outdraft.core.draft import Role, host_tree
from outdraft.core.policy import Budget
from outdraft.drafters.lookahead import Pool, Window
from outdraft.options.errors import ConfigError
from tests.helpers.table_target import TableTarget


def loop_table(period=7, vocab_size=11):
    """A target that walks round a cycle from wherever it is: repetitive text that the prompt does not hold."""
    target = TableTarget(vocab_size=vocab_size, order=1, max_len=4096)
    target.table = torch.zeros(vocab_size, vocab_size, dtype=torch.float64)
    for token in range(vocab_size):
        target.table[token, (token + 1) % period] = 9.0
    return target


def test_window_ripens_and_shifts():
    counter = iter(range(100, 200))
    window = Window(3, 4, lambda: next(counter))
    assert [len(level) for level in window.levels] == [5]
    window.set_root(1)
    assert window.advance([11, 12, 13, 14, 15], frozenset()) == []
    assert window.levels == [[101, 102, 103, 104], [12, 13, 14, 15]]
    window.set_root(2)
    assert window.advance([21, 22, 23, 24], frozenset()) == []
    assert window.levels == [[102, 103, 104], [13, 14, 15], [22, 23, 24]] and window.ripe
    window.set_root(3)
    made = window.advance([31, 32, 33], frozenset({32}))
    assert made == [(3, (13, 22, 31)), (103, (14, 23, 32)), (104, (15, 24, 33))]
    assert window.levels == [[13, 14, 15], [22, 23, 24], [31, 105, 33]]


def test_pool_is_bounded_and_forgets_the_oldest():
    pool = Pool(2)
    for tokens in ((1, 2), (3, 4), (1, 2), (5, 6)):
        pool.add(9, tokens)
    assert pool.get(9) == [(5, 6), (1, 2)] and pool.get(8) == []


def test_probes_see_their_column_and_stand_at_their_depth():
    drafter = make("lookahead", window=3, ngram=4, pool_from_prompt=False)
    seq = sequence([1, 2, 3])
    drafter.begin([seq])
    state = drafter._states[seq.id]
    state.window.levels = [[0, 11, 12], [20, 21, 22], [30, 31, 32]]
    state.pool.add(3, (5, 6, 7))
    draft = drafter.propose([seq], [Budget(depth=2)])[0]
    assert draft.tokens.tolist() == [3, 5, 6, 11, 12, 20, 21, 22, 30, 31, 32]
    assert draft.parents.tolist() == [-1, 0, 1, 0, 3, 0, 3, 4, 5, 6, 7]
    assert draft.roles.tolist() == [Role.VERIFY] * 3 + [Role.PROBE] * 8
    assert host_tree(draft).depths == [0, 1, 2, 1, 2, 1, 2, 3, 2, 3, 4]  # column i, level r: i + r
    assert state.probes == [8, 9, 10]


def test_the_text_is_plain_decodings():
    target = TableTarget(vocab_size=13, order=2, max_len=4096)
    plain, guessed = sequence([1, 2, 3]), sequence([1, 2, 3])
    write([plain], target, make("none", None))
    write([guessed], target, make("lookahead"))
    assert plain.output == guessed.output


@pytest.mark.parametrize("shape", [(1, 2, 1), (4, 2, 3), (7, 5, 7), (5, 3, 2)])
def test_repetition_pays_without_a_prompt_to_copy(shape):
    w, n, g = shape
    drafter = make("lookahead", window=w, ngram=n, guesses=g, pool_from_prompt=False)
    seq = sequence([1, 9, 10], max_tokens=120)
    run = write([seq], loop_table(), drafter)
    assert seq.output == [(4 + i) % 7 for i in range(120)]
    assert run.tokens_per_pass >= (1.5 if w > 1 else 1.2)
    assert all(not d for d in states(drafter).values())


def test_the_pool_never_exceeds_its_bound_while_running():
    drafter = make("lookahead", guesses=2)
    target = TableTarget(vocab_size=5, order=3, max_len=4096)

    def check(live):
        for state in drafter._states.values():
            assert all(len(tuples) <= 2 for tuples in state.pool._tuples.values())

    write([sequence([1, 2, 3, 1]), sequence([0])], target, drafter, each_step=check)


@pytest.mark.parametrize(
    ("depth", "nodes", "num_verify", "num_probes"),
    [
        (2, None, 6, 4),
        (1, None, 3, 4),
        (2, 10, 6, 4),
        (2, 5, 1, 4),
        (2, 4, 0, 4),
        (2, 3, 3, 0),
        (2, 0, 0, 0),
        (0, 9, 0, 0),
    ],
)
def test_budgets(depth, nodes, num_verify, num_probes):
    """Three tuples of the prompt follow the pending token; a window that does not fit whole is left out."""
    drafter = make("lookahead", window=4, ngram=3)
    seq = sequence([1, 2, 3, 1, 4, 5, 1, 6, 7, 1])
    drafter.begin([seq])
    draft = drafter.propose([seq], [Budget(depth=depth, nodes=nodes)])[0]
    roles = [Role.VERIFY] * draft.num_nodes if draft.roles is None else draft.roles.tolist()
    assert (roles.count(Role.VERIFY) - 1, roles.count(Role.PROBE)) == (num_verify, num_probes)
    below = host_tree(draft).depths
    assert all(below[i] <= depth for i, role in enumerate(roles) if role == Role.VERIFY)


def test_the_window_starts_from_tokens_of_the_prompt_that_do_not_end_it():
    drafter, seq = make("lookahead", window=9), sequence([5, 5, 6, 5, 7, 5], eos=(5,))
    drafter.begin([seq])
    assert set(drafter._states[seq.id].window.levels[0]) == {6, 7}


def test_the_window_stays_inside_the_context():
    text = [i % 5 for i in range(40)]
    target = Reciter(text, 5, max_len=40)
    drafter = make("lookahead")
    seq = sequence(text[:6], max_len=40, max_tokens=99)
    forward = target.forward

    def watched(packed, taps=()):
        assert int(packed.positions.max()) < 40
        return forward(packed, taps)

    target.forward = watched
    write([seq], target, drafter)
    assert seq.tokens == text


@pytest.mark.parametrize("bad", [{"window": 0}, {"ngram": 1}, {"guesses": 0}])
def test_bad_options(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        make("lookahead", **bad)
