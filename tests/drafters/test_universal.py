"""A draft model of any vocabulary: it writes as many of its own tokens as the target's will take."""

from math import ceil

import pytest
from contracts.sides import stranger, toy_codec
from drafters.drafting import sequence

from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject


@pytest.mark.parametrize("depth", [1, 3, 8])
def test_it_asks_for_as_many_tokens_as_the_text_so_far_took(depth, tmp_path):
    """Where the draft model's tokens are the shorter ones it writes more of them, else fewer."""
    subject = Subject(DrafterRow(drafter="universal", side=stranger, codec=toy_codec), tmp_path)
    drafter, seq = subject.engine().parts.drafter, sequence(list(range(5, 45)))
    drafter.begin([seq])
    text = drafter._texts[seq.id]
    text.update(seq.tokens)
    share = len(text.ids) / 40
    assert share != 1
    assert drafter._length(seq, depth) == ceil(depth * share) and drafter._length(seq, 0) == 0
