"""The door for drafters: rows seen again beside the text, and the whole network over a drafter's own cache."""

import pytest
import torch
from drafters.drafting import run_pending, sequence

from outdraft.cache.config import CacheConfig
from outdraft.core.draft import chain
from outdraft.core.packing import pack
from outdraft.core.skip import Skip
from outdraft.drafters.shared.networks.draft_cache import DraftCache
from outdraft.engine.runner import Runner
from outdraft.nn.context import CausalContext
from outdraft.testing.audit import CacheRecheck
from outdraft.testing.tiny import tiny_model

TEXTS = ([3, 1, 4, 1, 5, 9, 2, 6, 5], [7, 8, 9, 1])
SKIP = Skip(frozenset({1}), frozenset({0}))


def started(model, layout="static"):
    """A runner that has read all but the last token of the texts."""
    runner = Runner(model, cache=CacheConfig(layout=layout, poison=True))
    seqs = [sequence(text) for text in TEXTS]
    for seq in seqs:
        runner.begin(seq)
        runner.forward(pack([seq], [chain([seq.pending])]))
        runner.commit(seq, range(len(seq.tokens) - 1))
        seq.num_cached = len(seq.tokens) - 1
    return runner, seqs


@pytest.fixture(params=["llama", "mistral", "gpt2"])
def model(request):
    return tiny_model(request.param, layers=3, vocab=31)


@pytest.mark.parametrize("layout", ["static", "paged"])
def test_again_sees_the_text_before_and_touches_nothing(model, layout):
    with torch.inference_mode():
        runner, seqs = started(model, layout)
        counts = (4, 3)
        context = runner.port.rows.again(seqs, counts)
        ids = [token for seq, n in zip(seqs, counts, strict=True) for token in seq.tokens[:-1][-n:]]
        places = [p for seq, n in zip(seqs, counts, strict=True) for p in range(seq.num_cached - n, seq.num_cached)]
        found = runner.port.layers.run(torch.tensor(ids), torch.tensor(places), context)
        for seq, n, part in zip(seqs, counts, found.split(counts), strict=True):
            text = torch.tensor(seq.tokens[:-1])
            where = torch.arange(len(text))
            whole = model.run(model.embed(text, where), where, CausalContext(1, len(text))).hidden
            torch.testing.assert_close(part, whole[-n:], atol=1e-9, rtol=0)
            CacheRecheck(runner)(seq, seq.tokens[:-1])
        skipped = runner.port.layers.run(
            torch.tensor(ids), torch.tensor(places), runner.port.rows.again(seqs, counts), skip=SKIP
        )
        assert not torch.allclose(skipped, found, atol=1e-3)
        for seq in seqs:
            CacheRecheck(runner)(seq, seq.tokens[:-1])
            runner.commit(seq, [])
        runner.cache.check()


def test_the_network_runs_over_copied_rows(model):
    with torch.inference_mode():
        runner, seqs = started(model)
        config = model.config
        shape = (config.num_layers, config.num_kv_heads, config.head_dim)
        own = DraftCache(*shape, runner.dtype, runner.device, runner.max_len, exact=True)
        for seq in seqs:
            own.add(seq.id)
            own.grow(seq.id, seq.num_cached)
            for layer in range(config.num_layers):
                k, v = runner.port.rows.read(seq, layer)
                assert k.shape == (config.num_kv_heads, seq.num_cached, config.head_dim)
                own.rows.write(seq.id, layer, 0, k.transpose(0, 1), v.transpose(0, 1))
            own.keep(seq.id, range(seq.num_cached))
        ids, places = [seq.pending for seq in seqs], [seq.num_cached for seq in seqs]
        context = own.extend([seq.id for seq in seqs], [1, 1])
        over_copies = runner.port.layers.run(torch.tensor(ids), torch.tensor(places), context)
        assert torch.equal(over_copies, run_pending(seqs, runner))
