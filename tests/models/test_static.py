"""Passes over static memory: tokens may come from the host or stand on the device, recorded or not."""

import torch

from outdraft.cache.paged import PagedCache
from outdraft.models.networks.static import StaticDecoder
from outdraft.nn.attention.rows import NewRows, chain_bits
from outdraft.nn.capture import call_each_time
from outdraft.nn.context import CausalContext
from outdraft.testing.tiny import tiny_model


def make() -> tuple[StaticDecoder, PagedCache]:
    decoder = tiny_model("llama", exact=False)
    config = decoder.config
    pool = PagedCache(config.num_layers, config.num_kv_heads, config.head_dim, torch.float64, "cpu", 64)
    pool.add(0)
    pool.reserve(0, 5)
    return StaticDecoder(decoder, pool, call_each_time), pool


def rows(ids: list[int], pool: PagedCache) -> list[NewRows]:
    return [NewRows(ids=ids, positions=range(len(ids)), base=0, sees=chain_bits(len(ids)), pages=pool.pages(0))]


@torch.inference_mode()
def test_tokens_on_the_device_stand_in_for_those_of_the_host():
    static, pool = make()
    ids = torch.tensor([5, 9, 2, 40, 7])
    wanted = static.decoder(ids, torch.arange(5), CausalContext(1, 5))
    unknown = rows([0] * 5, pool)
    logits, taps = static.score(unknown, ids=ids, taps=(0, 2))
    assert (logits[:5] - wanted).abs().max() < 1e-12 and sorted(taps) == [0, 2]
    hidden = static.hidden(unknown, ids=ids).hidden
    assert (static.decoder.logits(hidden) - wanted).abs().max() < 1e-12
    again, _ = static.score(rows(ids.tolist(), pool))
    assert torch.equal(again[:5], logits[:5])


@torch.inference_mode()
def test_a_chain_is_its_steps_one_by_one():
    from outdraft.nn.attention.chain import ChainRows

    static, pool = make()
    tokens = static.chain([ChainRows(new=rows([5, 9], pool)[0], depth=4)], 4)[:, 0].tolist()
    text = [5, 9]
    for _ in range(4):
        logits = static.decoder(torch.tensor(text), torch.arange(len(text)), CausalContext(1, len(text)))
        text.append(int(logits[-1].argmax()))
    assert tokens == text[1:]
