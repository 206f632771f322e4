"""Token-level intersection: a policy's floor ends its chains."""

from contracts.sides import stranger, toy_codec
from drafters.drafting import sequence

from outdraft.core.policy import Budget
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject


def test_a_budget_may_ask_for_surer_tokens(tmp_path):
    subject = Subject(DrafterRow(drafter="vocab_map", side=stranger, codec=toy_codec), tmp_path)
    drafter, seqs = subject.engine().parts.drafter, [sequence([1, 2, 3]), sequence([4, 5])]
    drafter.begin(seqs)
    strict, free = drafter.propose(seqs, [Budget(depth=4, confidence=1.0), Budget(depth=4)])
    assert strict.num_nodes == 2 and free.num_nodes == 5  # the unsure token stays and ends its chain
    assert 0 < float(strict.confidence[1]) < 1 and len(free.confidence) == 5
