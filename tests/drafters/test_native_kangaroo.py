"""Kangaroo's adapter on the kernels says what it says through PyTorch; a shape that they do not know stays there."""

import pytest
import torch
from contracts.native_rows import kangaroo_adapter, small

from outdraft.cache.static import StaticCache
from outdraft.core.registry import find, make_options
from outdraft.drafters.kangaroo.net import KangarooAdapter, NativeAdapter, save_adapter
from outdraft.engine.runner import Runner
from outdraft.kernels.library import library
from outdraft.kernels.threads import torch_threads
from outdraft.models.networks.native import NativeDecoder
from outdraft.models.remake.packed_map import PackedMap
from outdraft.nn.cached import CachedContext
from outdraft.nn.segment import Segment

pytestmark = pytest.mark.skipif(library() is None, reason="the native kernels are not built")
ROWS = 5


def made(share=1.0, head_dim=32):
    """An adapter for a target of the kernels, and that target."""
    with torch_threads(1):
        target = NativeDecoder(small(61))
    return kangaroo_adapter(target, share=share, head_dim=head_dim).requires_grad_(False), target


def said(run, logits, h, *, dtype):
    """Logits of a few rows, of which the last two are read by themselves."""
    cache, places = StaticCache(1, 2, 32, dtype, "cpu", 16), torch.arange(ROWS)
    cache.add(0)
    cache.reserve(0, ROWS)
    found = []
    for start, stop in ((0, ROWS - 2), (ROWS - 2, ROWS)):
        context = CachedContext(cache, [Segment(seq=0, start=0, stop=stop - start, base=start)])
        found.append(logits(run(h[start:stop], places[start:stop], context)).float())
    return torch.cat(found)


@pytest.mark.parametrize("share", [1.0, 0.7])
def test_logits_are_those_of_pytorch_in_float32(share):
    adapter, target = made(share)
    runner = Runner(target)
    adapter.borrow(runner.port)
    native = NativeAdapter(adapter, target)
    h = torch.randn(ROWS, 64, generator=torch.Generator().manual_seed(1))
    found = said(native, native.logits, h, dtype=torch.bfloat16)
    wide = KangarooAdapter(adapter.config, torch.float32, vocab=adapter.vocab).requires_grad_(False)
    wide.load_state_dict({name: one.float() for name, one in adapter.state_dict().items()})
    wide.borrow(runner.port)
    expected = said(wide, wide.logits, h, dtype=torch.float32)
    assert found.shape == expected.shape == (ROWS, 61 if share == 1 else int(0.7 * 61))
    torch.testing.assert_close(found, expected, atol=0.03 * float(expected.std()), rtol=0.02)


@pytest.mark.parametrize(("head_dim", "is_native"), [(32, True), (16, False)])
def test_the_kernels_take_what_they_know(head_dim, is_native, tmp_path):
    adapter, target = made(head_dim=head_dim)
    save_adapter(adapter, tmp_path, 61)
    method = find("drafter", "kangaroo")
    drafter = method.build(make_options(method, {"model": str(tmp_path)}), Runner(target).port)
    run = drafter._texts._adapter
    assert isinstance(run, NativeAdapter if is_native else KangarooAdapter)
    assert is_native or isinstance(run.attention.qkv, PackedMap)
    assert drafter.traits.weights[0].bits == 8 and drafter.traits.weights[0].kernels == "native"
