"""A target's pass in one native call has the bits of the pass in parts: ragged, trees, masks, probes, prompts, taps."""

import random

import pytest
import torch
from drafters.drafting import sequence
from kernels.test_stack import make

from outdraft.cache.config import CacheConfig
from outdraft.core.draft import Draft, Role, chain
from outdraft.core.packing import pack
from outdraft.engine.runner import Runner
from outdraft.kernels.library import wanted_kind
from outdraft.models.networks.native import NativeDecoder
from outdraft.options.errors import CapabilityError

pytestmark = pytest.mark.skipif(wanted_kind() is None, reason="the native kernels are not built or switched off")
CACHES = [CacheConfig(layout="static"), CacheConfig(layout="paged"), CacheConfig(layout="static", dtype="int8")]


def started(decoder, cache, texts):
    runner = Runner(decoder, cache=cache)
    seqs = [sequence(text) for text in texts]
    for i, seq in enumerate(seqs):
        seq.id, seq.num_cached = i, 0
        runner.begin(seq)
    return runner, seqs


def some_draft(dice, pending, vocab):
    """A tree; now and then with a probe at its end, now and then with a mask of its own."""
    n = dice.randrange(1, 9)
    parents = [-1] + [dice.randrange(i) for i in range(1, n)]
    tokens = [pending] + [dice.randrange(vocab) for _ in range(n - 1)]
    roles, mask = None, None
    if n > 2 and dice.random() < 0.5:
        roles = torch.tensor([Role.VERIFY] * (n - 1) + [Role.PROBE])
    if dice.random() < 0.3:
        mask = torch.eye(n, dtype=torch.bool)
        for i in range(1, n):
            mask[i] |= mask[parents[i]]
        mask[n - 1, : n - 1] |= dice.random() < 0.5
    return Draft(tokens=torch.tensor(tokens), parents=torch.tensor(parents), roles=roles, mask=mask)


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("family", ["llama", "grouped"])
@torch.inference_mode()
def test_the_bits_of_a_pass_in_parts(family, cache):
    decoder, dice = NativeDecoder(make(family)), random.Random(1)
    vocab = decoder.config.vocab_size
    texts = [[dice.randrange(vocab) for _ in range(n)] for n in (3, 20, 40)]
    (whole, seqs), (parts, _) = started(decoder, cache, texts), started(decoder, cache, texts)
    assert whole._scorer is not None
    parts._scorer = None
    for _ in range(10):
        packed = pack(seqs, [some_draft(dice, seq.pending, vocab) for seq in seqs], max_chunk=7)
        logits = whole.forward(packed).logits
        assert torch.equal(logits, parts.forward(packed).logits)
        tapped = parts.forward(packed, taps=(1,))
        assert torch.equal(logits, tapped.logits) and len(tapped.hidden[1]) == packed.row_starts[-1]
        for i, seq in enumerate(seqs):
            keep = list(range(packed.num_certain[i] + (packed.drafts[i] is not None)))
            if packed.drafts[i] is not None:
                seq.tokens.append(dice.randrange(vocab))
            whole.commit(seq, keep)
            parts.commit(seq, keep)
            seq.num_cached += len(keep)
            for layer in range(decoder.config.num_layers):
                kept = [each.cache.read(seq.id, layer, each.cache.length(seq.id)) for each in (whole, parts)]
                for ours, theirs in zip(*kept, strict=True):
                    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("wrong", [-1, 1000])
def test_an_id_that_the_target_does_not_know_is_named(wrong):
    runner, (seq,) = started(NativeDecoder(make("llama")), CACHES[0], [[1, 2, 3]])
    with pytest.raises(CapabilityError, match=f"token id {wrong} has no embedding"):
        runner.forward(pack([seq], [chain([3, wrong])]))


def test_a_pass_is_timed_as_it_runs():
    runner, _ = started(NativeDecoder(make("llama")), CACHES[0], [[1, 2, 3]])
    assert 0 < runner.port.costs.pass_seconds(4) < 60
