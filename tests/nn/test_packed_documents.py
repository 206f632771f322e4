"""Attention document by document is that of all rows at once under a mask."""

import pytest
import torch

from outdraft.nn.packed import PackedContext, document_sizes, sees
from outdraft.nn.scores import attention

DOCUMENTS = torch.tensor([[0] * 5 + [1] * 7, [0] * 11 + [1]])


def test_a_document_ends_with_its_sequence():
    assert document_sizes(torch.tensor([[0, 0, 1], [1, 1, 1]])) == [2, 1, 3]


@pytest.mark.parametrize("window", [None, 1, 3, 7, 50])
def test_each_document_sees_itself_up_to_each_row_and_no_further_than_a_window(window):
    torch.manual_seed(0)
    q, k, v = torch.randn(24, 4, 8), torch.randn(24, 2, 8), torch.randn(24, 2, 8)
    found = PackedContext(2, 12, DOCUMENTS).attend(0, q, k, v, window=window, scale=0.3)
    q, k, v = (x.view(2, 12, -1, 8).transpose(1, 2) for x in (q, k, v))
    wanted = attention(q, k, v, scale=0.3, mask=sees(DOCUMENTS, window))
    torch.testing.assert_close(found, wanted.transpose(1, 2).reshape(24, 32))
