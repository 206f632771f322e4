"""Token-level intersection: all that both vocabularies have is mapped; a policy's cutoff ends its chains."""

import torch
from contracts.sides import stranger, toy_codec
from drafters.drafting import sequence

from outdraft.codecs.text import TextCodec
from outdraft.core.policy import Budget
from outdraft.drafters.shared.networks.own_model import Text
from outdraft.drafters.vocab_map import shared_tokens
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject


def test_a_budget_may_ask_for_surer_tokens(tmp_path):
    subject = Subject(DrafterRow(drafter="vocab_map", side=stranger, codec=toy_codec), tmp_path)
    drafter, seqs = subject.engine().parts.drafter, [sequence([1, 2, 3]), sequence([4, 5])]
    drafter.begin(seqs)
    strict, free = drafter.propose(seqs, [Budget(depth=4, confidence=1.0), Budget(depth=4)])
    assert strict.num_nodes == 2 and free.num_nodes == 5  # the unsure token stays and ends its chain
    assert 0 < float(strict.confidence[1]) < 1 and len(free.confidence) == 5


def test_every_shared_token_is_mapped_and_drawn(tmp_path):
    """By brute force over both vocabularies; a guess may be any token that both have, and none that one lacks."""
    subject = Subject(DrafterRow(drafter="vocab_map", side=stranger, codec=toy_codec), tmp_path)
    drafter = subject.engine().parts.drafter
    ours, theirs = toy_codec(61), TextCodec.load(next(tmp_path.rglob("tokenizer.json")).parent)
    spelled = {theirs.token_bytes(i) for i in range(theirs.vocab_size)}
    both = {i for i in range(61) if ours.token_bytes(i) in spelled}
    assert len(both) > 12 and drafter.num_shared == len(both)
    for i, j in shared_tokens(ours, theirs, 61, theirs.vocab_size).items():
        assert ours.token_bytes(i) == theirs.token_bytes(j)
    seqs = [sequence([1, 2, 3], temperature=1.0)]
    drafter.begin(seqs)
    (draft,) = drafter.propose(seqs, [Budget(depth=1)])
    assert {i for i, share in enumerate(draft.q[0].tolist()) if share > 0} == both
    logits = drafter.model.read([Text(seqs[0].id, theirs.encode(ours.decode([1, 2, 3])))])[0]
    mine = [shared_tokens(ours, theirs, 61, theirs.vocab_size)[i] for i in sorted(both)]
    assert torch.allclose(draft.q[0][sorted(both)].double(), torch.softmax(logits[mine].double(), -1), atol=1e-6)


def test_a_text_is_tokenized_again_only_where_a_guess_is_wanted(tmp_path):
    subject = Subject(DrafterRow(drafter="vocab_map", side=stranger, codec=toy_codec), tmp_path)
    drafter, seqs = subject.engine().parts.drafter, [sequence([1, 2, 3]), sequence([4, 5])]
    drafter.begin(seqs)
    drafts = drafter.propose(seqs, [Budget(depth=0), Budget(depth=1)])
    assert [draft.num_nodes for draft in drafts] == [1, 2]
    assert [bool(drafter._texts[seq.id].ids) for seq in seqs] == [False, True]
