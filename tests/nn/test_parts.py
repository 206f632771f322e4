"""Linears and their tilings, activations row by row, rotary tables, segments."""

import pytest
import torch
import torch.nn.functional as F

from outdraft.kernels.threads import torch_threads
from outdraft.nn import invariance
from outdraft.nn.activation import ACTIVATIONS, rowwise
from outdraft.nn.context import CausalContext
from outdraft.nn.invariance import cancelling_linear, cancelling_rows, find_tile, is_invariant
from outdraft.nn.linear import Linear, RowTile
from outdraft.nn.norm import RMSNorm
from outdraft.nn.rope import Rope, RopeConfig
from outdraft.nn.segment import Segment

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def linear(num_in, num_out, dtype, bias=True):
    torch.manual_seed(0)
    made = Linear(num_in, num_out, bias, dtype, torch.device("cpu"))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    return made.requires_grad_(False)


def prepared(num_in, num_out, dtype, bias=True):
    made = linear(num_in, num_out, dtype, bias)
    made.tile = find_tile(made)
    if made.tile.packed:
        made.pack()
    return made


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(16, 48), (32, 48), (32, 96), (48, 32), (172, 61), (384, 300), (2048, 40)], ids=str)
def test_a_found_tile_makes_rows_independent(dtype, shape):
    made = prepared(*shape, dtype)
    x = torch.randn(70, shape[0]).to(dtype)
    loose = {torch.bfloat16: 0.5, torch.float16: 0.1}.get(dtype, 1e-3)
    exact = F.linear(x.double(), made.weight.double(), made.bias.double())
    torch.testing.assert_close(made(x).double(), exact, atol=loose, rtol=0.02)

    order = torch.randperm(shape[0])  # paired inputs cancel: only the rounding of one order of summation remains
    one, other = order[: shape[0] // 2], order[shape[0] // 2 :]
    made.weight[:, other] = made.weight[:, one]
    x[:, other] = -x[:, one]
    made.bias.zero_()
    if made.packed is not None:
        made.pack()
    alone = torch.cat([made(x[i : i + 1]) for i in range(70)])
    assert alone.ne(0).any()
    for n in range(1, 71):
        assert torch.equal(made(x[:n]), alone[:n]), n
    for start, stop in ((1, 3), (5, 38), (20, 29)):
        assert torch.equal(made(x[start:stop]), alone[start:stop])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_trial_product_is_nothing_but_rounding(dtype):
    like = linear(384, 300, dtype)
    trial, rows = cancelling_linear(like), cancelling_rows(like, 9)
    small = trial(rows).abs()
    assert 0 < small.max() < 1e3 * torch.finfo(dtype).eps
    assert trial(rows.abs()).abs().max() > 10


def test_the_trial_sees_a_different_order_of_summation_in_bfloat16():
    like = linear(384, 300, torch.bfloat16)
    trial, rows = cancelling_linear(like), cancelling_rows(like, 33)
    order = torch.arange(384).flip(0)

    def product(x):  # alone forwards, in company backwards
        if x.shape[0] == 1:
            return F.linear(x, trial.weight, trial.bias)
        return F.linear(x[:, order], trial.weight[:, order], trial.bias)

    trial.product = product
    assert not is_invariant(trial, RowTile(most=32, least=1, packed=False), rows)
    assert is_invariant(trial, RowTile(most=1, least=1, packed=False), rows)


def test_a_tile_holds_on_every_number_of_threads_that_a_step_may_have(monkeypatch):
    """Whatever number of threads there was when the weights were read."""
    seen = []

    def holds(trial, plan, rows):
        seen.append((plan, torch.get_num_threads()))
        return torch.get_num_threads() == 3 or not plan.packed

    monkeypatch.setattr(invariance, "is_invariant", holds)
    monkeypatch.setattr(invariance, "num_threads", lambda: 3)
    with torch_threads(2):
        assert not find_tile(linear(24, 40, torch.float32)).packed and torch.get_num_threads() == 2
    assert {threads for _, threads in seen} == {1, 3}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bulk_rows_are_one_piece_and_do_not_disturb_the_others(dtype):
    made = prepared(32, 96, dtype)
    x = torch.randn(200, 32).to(dtype)
    parts = torch.cat([made(x[:3]), made.product(x[3:103]), made(x[103:110]), made.product(x[110:])])
    assert torch.equal(made(x, [(3, 103), (110, 200)]), parts)
    assert torch.equal(made(x[:110], [(3, 103)]), parts[:110])
    assert torch.equal(made(x[3:], [(0, 100), (107, 197)]), parts[3:])


def test_a_changed_weight_needs_a_new_pack():
    made = linear(32, 96, torch.float32)
    made.pack()
    assert made.packed is not None
    made.weight.mul_(2)
    x = torch.randn(3, 32)
    made.pack()
    torch.testing.assert_close(made(x), F.linear(x, made.weight, made.bias))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("width", [48, 64, 172, 2720, 40000])
def test_an_activation_row_is_independent(dtype, name, width):
    function = ACTIVATIONS[name]
    x = torch.randn(20, 2 * width, generator=torch.Generator().manual_seed(0)).to(dtype)
    for view in (x[:, :width], x[:, :width].contiguous()):
        alone = torch.cat([rowwise(function, view[i : i + 1]) for i in range(20)])
        for n in (1, 2, 7, 20):
            assert torch.equal(rowwise(function, view[:n]), alone[:n])
        torch.testing.assert_close(alone, function(view))


def test_rotary_tables_do_not_depend_on_what_was_asked_before():
    config = RopeConfig(dim=6, theta=500.0)
    small, large = Rope(config), Rope(config)
    few = small.at(torch.tensor([3, 900]), torch.float64)
    many = large.at(torch.arange(9000), torch.float64)
    assert torch.equal(few.cos, many.cos[[3, 900]]) and torch.equal(few.sin, many.sin[[3, 900]])
    again = small.at(torch.arange(5000), torch.float64)
    assert torch.equal(again.cos, many.cos[:5000])
    x = torch.randn(2, 4, 10, dtype=torch.float64)
    turned = few(x)
    assert torch.equal(turned[..., 6:], x[..., 6:])
    a, b = x[..., :3], x[..., 3:6]
    angle = torch.tensor([3.0, 900.0], dtype=torch.float64)[:, None, None] * 500.0 ** (-torch.arange(0, 6, 2) / 6)
    torch.testing.assert_close(turned[..., :3], a * angle.cos() - b * angle.sin(), atol=1e-4, rtol=0)
    torch.testing.assert_close(turned[..., 3:6], b * angle.cos() + a * angle.sin(), atol=1e-4, rtol=0)


def test_tables_made_in_inference_mode_serve_training():
    rope = Rope(RopeConfig(dim=8))
    with torch.inference_mode():
        rope.at(torch.arange(4), torch.float32)
    x = torch.randn(4, 2, 8, requires_grad=True)
    rope.at(torch.arange(4), torch.float32)(x).sum().backward()
    assert x.grad is not None


def test_segments_know_their_tree():
    segment = Segment(seq=0, start=4, stop=8, base=10, parents=(-1, 0, 0, 2))
    assert segment.depths() == [0, 1, 1, 2]
    assert segment.paths(0, 4) == [(0,), (0, 1), (0, 2), (0, 2, 3)]
    assert segment.visible().int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]
    assert segment.num_bulk == 0 and not segment.is_chain
    chain = Segment(seq=0, start=0, stop=70, base=0)
    assert chain.num_bulk == 70 and chain.is_chain
    assert chain.paths(1, 3) == [(0, 1), (0, 1, 2)]
    assert Segment(seq=0, start=0, stop=70, base=0, bulk=64).num_bulk == 0


@pytest.mark.parametrize("window", [None, 1, 3, 50])
def test_causal_context_is_textbook_attention(window):
    torch.manual_seed(0)
    q, k, v = torch.randn(14, 4, 8), torch.randn(14, 2, 8), torch.randn(14, 2, 8)
    out = CausalContext(2, 7).attend(0, q, k, v, window=window, scale=0.3).view(2, 7, 4, 8)
    for batch in range(2):
        for row in range(7):
            first = 0 if window is None else max(0, row + 1 - window)
            for head in range(4):
                own = slice(7 * batch + first, 7 * batch + row + 1)
                weights = (k[own, head // 2] @ q[7 * batch + row, head] * 0.3).softmax(0)
                torch.testing.assert_close(out[batch, row, head], weights @ v[own, head // 2])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("x_dtype", "weight_dtype"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16), (torch.bfloat16, torch.bfloat16)],
)
def test_a_norm_under_another_format_is_computed_in_the_wider_one_without_a_warning(x_dtype, weight_dtype):
    """As passes under autocast meet float32 weights."""
    norm = RMSNorm(24, 1e-5, weight_dtype, torch.device("cpu"))
    x = torch.randn(5, 24, generator=torch.Generator().manual_seed(0)).to(x_dtype)
    torch.nn.init.normal_(norm.weight, generator=torch.Generator().manual_seed(1))
    exact = x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight.detach().double()
    out = norm(x).detach()
    assert out.dtype == x_dtype
    rounding = torch.finfo(x_dtype).eps if x_dtype == torch.float32 else torch.finfo(torch.bfloat16).eps
    assert float(((out.double() - exact).abs() / exact.abs()).max()) <= (2 if x_dtype != weight_dtype else 3) * rounding
