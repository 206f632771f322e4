"""SAM decoding: the longest match is copied, loops go on, the datastore has to know more, short matches are left."""

import random

import pytest
from drafters.drafting import Reciter, make, sequence, states, write

from outdraft.core.drafter import Seen
from outdraft.core.policy import Budget
from outdraft.drafters.shared.look_up.datastore.build import IdsOnly, build_datastore
from outdraft.options.errors import ConfigError


class Port:
    """As much of a target as SAM looks at."""

    vocab_size = 10
    codec = None


def guess(tokens, depth=5, references=(), port=None, **options):
    drafter, seq = make("sam", port, **options), sequence(tokens)
    object.__setattr__(seq.request, "references", references)
    drafter.begin([seq])
    return drafter.propose([seq], [Budget(depth=depth)])[0].tokens.tolist()[1:]


def test_the_longest_match_is_copied():
    #      1 2 7 3   8 2 7 4   1 2 7        "1 2 7" is longer than "2 7", though the latter is later
    assert guess([1, 2, 7, 3, 8, 2, 7, 4, 1, 2, 7], depth=1) == [3]


def test_a_loop_is_continued_and_short_matches_are_left():
    assert guess([3, 1, 2, 1, 2]) == [1, 2, 1, 2, 1]
    assert guess([4, 5, 6, 4], min_match=2) == []
    assert guess([4, 5, 6, 4], min_match=1) == [5, 6, 4, 5, 6]


def test_references_end_where_they_end():
    assert guess([9, 1, 2], references=((1, 2, 3, 4), (5, 6))) == [3, 4]
    assert guess([9, 5, 6], references=((1, 2), (5, 6), (7, 7))) == []


def test_the_datastore_has_to_know_more(tmp_path):
    build_datastore(tmp_path / "store", [[1, 2, 3, 4, 5], [6, 7]], IdsOnly(vocab_size=10))
    text = [3, 4, 9, 9, 2, 3, 4]  # own match "3 4", the datastore's "2 3 4"
    told = {"port": Port(), "datastore": str(tmp_path / "store"), "depth": 3}
    assert guess(text, bias=0, **told) == [5]
    assert guess(text, bias=1, **told) == [9, 9, 2]
    assert guess([0, 2, 3, 4], bias=1, **told) == [5]  # the request itself has no match at all
    assert guess([0, 2, 3, 4], bias=2, **told) == []
    assert guess([9, 6, 7], bias=0, **told) == []
    assert guess([0, 2, 3, 4], bias=1, min_match=2, **told) == [5]  # a match of 3 counts as 2
    assert guess([0, 2, 3, 4], bias=1, min_match=3, **told) == []


def test_the_other_drafter_is_asked_where_the_match_is_short():
    drafter = make("sam", otherwise="contracts.stutter:METHOD")
    seqs = [sequence([4]), sequence([4, 5, 8, 4, 5])]
    drafter.begin(seqs)
    drafter.observe([Seen(seq=seq, start=0, num_committed=0) for seq in seqs])
    drafts = drafter.propose(seqs, [Budget(depth=2), Budget(depth=1)])
    assert [draft.tokens.tolist() for draft in drafts] == [[4, 4, 4], [5, 8]]
    assert drafter._inner.observed == {seq.id: 1 for seq in seqs}
    drafter.end(seqs)
    assert not drafter._inner.observed


def test_the_other_drafter_is_asked_where_nothing_follows_the_match():
    """The match is long enough, but it ends a reference, or a document of the store."""
    drafter, seq = make("sam", otherwise="contracts.stutter:METHOD"), sequence([9, 5, 6], references=((5, 6), (7, 7)))
    drafter.begin([seq])
    drafter.observe([Seen(seq=seq, start=0, num_committed=0)])
    assert drafter.propose([seq], [Budget(depth=2)])[0].tokens.tolist() == [6, 6, 6]
    assert drafter.propose([seq], [Budget(depth=0)])[0].tokens.tolist() == [6]


def test_a_repeated_block_is_copied():
    block = random.Random(1).sample(range(200), 40)
    text, drafter = block * 11, make("sam")
    run = write([sequence(block, max_tokens=400)], Reciter(text, 200), drafter, k=10)
    late = [e for e in run.events if e.tokens][3:]
    assert sum(len(e.tokens) for e in late) / len(late) >= 8
    assert all(not d for d in states(drafter).values())


@pytest.mark.parametrize("bad", [{"min_match": 0}, {"bias": -1}])
def test_bad_options(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        make("sam", **bad)
