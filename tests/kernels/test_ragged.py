"""Random ragged passes on the native kernels: several sequences at once, chains and trees, over caches of any length.

A node must have the bits that its path has when it is decoded alone, and be near to float32 in PyTorch.
"""

import copy
import random
from functools import cache

import pytest
import torch
from torch import Tensor

from kernels.test_stack import SHAPES, Feeder, make
from outdraft.cache.static import StaticCache
from outdraft.kernels.library import KINDS, library
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.native import NativeDecoder
from outdraft.nn.cached import CachedContext
from outdraft.nn.context import CausalContext
from outdraft.nn.segment import Segment

pytestmark = pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)")
TOO_FAR = {16: 0.2, 8: 0.5, 4: 0.5}  # mean distance from float32 over mean size of a logit, by bits of a weight


native = library()
kinds = [kind for kind in KINDS if native is not None and native.od_has_kernels(kind.encode())]


@cache
def decoders(shape: str, kind: str) -> tuple[NativeDecoder, Decoder]:
    """On kernels for these instructions, and in float32."""
    made = make(shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTDRAFT_KERNELS", kind)
        return NativeDecoder(made), copy.deepcopy(made).float()


def random_tree(rng: random.Random, n: int) -> tuple[int, ...] | None:
    """Parents of n rows, or None for a chain."""
    if rng.random() < 0.4:
        return None
    return (-1, *(rng.randrange(max(0, i - 5), i) for i in range(1, n)))


def run_case(seed: int, kind: str) -> list[float]:
    """How far the rows of one pass are from float32, as a share of `TOO_FAR`; bits are compared here."""
    shape = list(SHAPES)[seed % len(SHAPES)]
    return run_pass(seed, *decoders(shape, kind), shape)


def run_pass(seed: int, native: NativeDecoder, wide: Decoder, shape: str) -> list[float]:
    """The same of any decoder and its twin."""
    rng, config = random.Random(seed), native.config

    def ids(n: int) -> Tensor:
        return torch.tensor([rng.randrange(config.vocab_size) for _ in range(n)], dtype=torch.long)

    cache = StaticCache(
        config.num_layers, config.num_kv_heads, config.head_dim, torch.bfloat16, "cpu", 256, poison=True
    )
    texts, guesses, segments, far, start = [], [], [], [], 0
    for seq in range(rng.randint(1, 4)):
        text, n = ids(rng.choice((0, 1, 7, 15, 16, 17, 40))), rng.randint(1, 16)
        cache.add(seq)
        if len(text):
            cache.reserve(seq, len(text))
            context = CachedContext(cache, [Segment(seq=seq, start=0, stop=len(text), base=0)])
            native.run(native.embed(text, torch.arange(len(text))), torch.arange(len(text)), context)
            cache.commit(seq, range(len(text)))
        cache.reserve(seq, n)
        segments.append(Segment(seq=seq, start=start, stop=start + n, base=len(text), parents=random_tree(rng, n)))
        texts.append(text)
        guesses.append(ids(n))
        start += n
    positions = torch.cat([torch.tensor(segment.depths()) + segment.base for segment in segments])
    together = native.logits(
        native.run(native.embed(torch.cat(guesses), positions), positions, CachedContext(cache, segments)).hidden
    )
    for text, guess, segment in zip(texts, guesses, segments, strict=True):
        path = segment.paths(0, segment.num_rows)[rng.randrange(segment.num_rows)]
        row, chosen = together[segment.start + path[-1]], guess[list(path)]
        alone = Feeder(native)
        if len(text):
            alone.feed(text)
        for token in chosen:
            last = alone.feed(token[None])[-1]
        assert torch.equal(row, last), f"seed {seed}, {shape}: another row's company changed its bits"
        whole = torch.cat((text, chosen))
        expected = wide(whole, torch.arange(len(whole)), CausalContext(1, len(whole)))[-1]
        off = float((row - expected).abs().mean() / expected.abs().mean())
        bits = config.quant.bits if config.quant is not None else 16
        far.append(off / TOO_FAR[bits])
    return far


@pytest.mark.parametrize("kind", kinds)
@pytest.mark.parametrize("seed", range(36))
def test_a_ragged_pass_has_the_bits_of_its_paths_alone(seed, kind):
    assert max(run_case(seed, kind)) < 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", kinds)
def test_a_thousand_ragged_passes(kind):
    """One row in a thousand may be far: random weights make twenty times of a rounding, here and there."""
    far = [off for seed in range(1_000) for off in run_case(seed, kind)]
    assert sum(off > 1 for off in far) < len(far) / 1_000
