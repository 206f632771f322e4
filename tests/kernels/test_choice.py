"""The best few tokens of each row: equal to sorting, whatever the size, and of equal logits the first."""

import pytest
import torch

from outdraft.kernels.decoder.choice import best_distribution, best_tokens
from outdraft.kernels.decoder.top import top_ids, top_tokens
from outdraft.kernels.library import wanted_kind

native = pytest.mark.skipif(wanted_kind() is None, reason="the native kernels are not built or switched off")


def ranked(logits, count):
    """By sorting: best first, of equals the first."""
    return torch.sort(logits, dim=-1, descending=True, stable=True).indices[:, :count]


@pytest.mark.parametrize("size", [1, 7, 64, 65, 127, 200, 4096])
@pytest.mark.parametrize("count", [1, 3, 8, 100])
def test_the_best_few(size, count):
    torch.manual_seed(size)
    logits, count = torch.randn(9, size), min(size, count)
    assert top_ids(logits, count).tolist() == ranked(logits, count).tolist()
    assert top_ids(logits.double(), count).tolist() == ranked(logits, count).tolist()  # by PyTorch


@native
@pytest.mark.parametrize("size", [1, 7, 16, 31, 64, 200, 4096])
@pytest.mark.parametrize("count", [2, 1000])
def test_the_best_and_its_distribution(size, count):
    torch.manual_seed(size)
    logits = torch.randint(0, count, (30, size)).float()  # of two values: many equals
    logits[0] = -torch.inf
    logits[0, -1] = -1.0
    best = ranked(logits, 1)[:, 0]
    assert best_tokens(logits) == best.tolist()
    assert torch.equal(best_distribution(logits), torch.nn.functional.one_hot(best, size).float())
    for bad in (torch.nan, torch.inf):
        wrong = logits.clone()
        wrong[3, size // 2] = bad
        assert best_tokens(wrong) is None and best_distribution(wrong) is None
    wrong[3] = -torch.inf
    assert best_tokens(wrong) is None


@native
@pytest.mark.parametrize("size", [20, 64, 300])
def test_of_equals_the_first(size):
    torch.manual_seed(size)
    logits = torch.randint(0, 4, (30, size)).float()
    assert top_ids(logits, 8).tolist() == ranked(logits, 8).tolist()


@native
def test_with_log_probabilities():
    torch.manual_seed(3)
    logits = torch.randn(5, 300) * 4
    tokens, logs = top_tokens(logits, 6)
    assert tokens == ranked(logits, 6).tolist()
    assert torch.allclose(torch.tensor(logs), torch.log_softmax(logits, -1).gather(1, torch.tensor(tokens)), atol=1e-5)


@native
def test_a_row_without_finite_logits():
    logits = torch.randn(2, 100)
    logits[1] = torch.nan
    assert top_tokens(logits, 3) is None
    assert top_ids(logits, 3)[0].tolist() == ranked(logits, 3)[0].tolist()


@native
@pytest.mark.parametrize("count", [0, 8])
def test_more_than_there_are_is_left_to_pytorch(count):
    assert top_tokens(torch.randn(3, 7), count) is None
