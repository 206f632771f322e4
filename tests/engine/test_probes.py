"""Merged predicting and verifying: probe rows behind a draft see what they must, and change nothing that is verified.

nodes  [ root | tree to verify | probes ]     lookahead: a window below the root
                                              PaSS, blockwise heads: learned vectors below every verified node
"""

import random
from dataclasses import replace

import pytest
import torch
from drafters.drafting import make, sequence

from outdraft.core.draft import Draft, Role
from outdraft.core.packing import pack
from outdraft.core.policy import Budget
from outdraft.engine.runner import Runner
from outdraft.nn.context import CausalContext
from outdraft.testing.tiny import TINY_ARCHITECTURES, tiny_model

PROMPT = [7, 3, 9, 9, 1, 7, 3, 9, 4, 1, 30, 31, 32, 7, 3]
PARENTS = [-1, 0, 0, 1, 2, 2, 3]


def scored(model, draft):
    """Logits at every node of `draft` after PROMPT, the runner, and the sequence."""
    runner = Runner(model)
    seq = sequence(PROMPT)
    runner.begin(seq)
    seq.num_cached = 0
    packed = pack([seq], [draft])
    logits = runner.forward(packed).logits
    return logits, runner, seq


def verify_tree():
    dice = random.Random(5)
    tokens = [PROMPT[-1], *(dice.randrange(61) for _ in PARENTS[1:])]
    return Draft(tokens=torch.tensor(tokens), parents=torch.tensor(PARENTS))


def with_probes(draft, below, embeds=None):
    """`below`: parents of the probe nodes, which follow the draft's."""
    dice = random.Random(6)
    n = draft.num_nodes
    vectors = None
    if embeds is not None:
        vectors = torch.full((n + len(below), embeds.shape[1]), torch.nan, dtype=embeds.dtype)
        vectors[n:] = embeds[: len(below)]
    return Draft(
        tokens=torch.cat([draft.tokens, torch.tensor([dice.randrange(61) for _ in below])]),
        parents=torch.cat([draft.parents, torch.tensor(below)]),
        roles=torch.tensor([Role.VERIFY] * n + [Role.PROBE] * len(below)),
        embeds=vectors,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("architecture", TINY_ARCHITECTURES)
@pytest.mark.parametrize("kind", ["window", "mask slots"])
def test_probes_change_no_bit_of_what_is_verified(architecture, kind, dtype):
    model = tiny_model(architecture, dtype=dtype)
    alone = verify_tree()
    n = alone.num_nodes
    slots = [parent for node in range(n) for parent in (node, n + 2 * node)]  # a chain of two behind every node
    vectors = torch.randn(2 * n, model.config.hidden_size, dtype=dtype, generator=torch.Generator().manual_seed(2))
    crowded = with_probes(alone, [0, n, n + 1, 0, n, n + 1]) if kind == "window" else with_probes(alone, slots, vectors)
    plain, _, _ = scored(model, alone)
    merged, runner, seq = scored(model, crowded)
    assert torch.equal(merged[:n], plain)
    keep = [*range(len(PROMPT) - 1), *(len(PROMPT) - 1 + node for node in (0, 1, 3))]
    runner.commit(seq, keep)
    assert runner.cache.length(seq.id) == len(PROMPT) + 2


@pytest.mark.parametrize("architecture", TINY_ARCHITECTURES)
def test_a_probe_sees_its_own_path_alone(architecture):
    """Mask slots of learned vectors: as if each stood alone behind its path."""
    model = tiny_model(architecture)
    alone = verify_tree()
    n = alone.num_nodes
    vectors = torch.randn(2 * n, model.config.hidden_size, dtype=torch.float64)
    slots = [parent for node in range(n) for parent in (node, n + 2 * node)]
    merged, _, _ = scored(model, with_probes(alone, slots, vectors))
    for node in range(n):
        path, above = [], node
        while above > 0:
            path.append(int(alone.tokens[above]))
            above = PARENTS[above]
        ids = torch.tensor([*PROMPT, *path[::-1], 0, 0])
        positions = torch.arange(len(ids))
        h = model.embed(ids, positions)
        h[-2:] = vectors[2 * node : 2 * node + 2]
        hand = model.logits(model.run(h, positions, CausalContext(1, len(ids))).hidden)
        torch.testing.assert_close(merged[n + 2 * node : n + 2 * node + 2], hand[-2:], atol=1e-9, rtol=0)
        torch.testing.assert_close(merged[node], hand[-3], atol=1e-9, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lookaheads_window_changes_no_bit_of_its_tuples(dtype):
    model = tiny_model(dtype=dtype)
    drafter = make("lookahead", window=4, ngram=4, guesses=3)
    seq = sequence(PROMPT)
    drafter.begin([seq])
    state = drafter._states[seq.id]
    state.window.levels = [[0, 11, 12, 13], [20, 21, 22, 23], [30, 31, 32, 33]]
    state.pool.add(PROMPT[-1], (5, 6, 7))
    (draft,) = drafter.propose([seq], [Budget(depth=3)])
    n = int((draft.roles == Role.VERIFY).sum())
    assert draft.num_nodes - n == 11 and n > 3
    without = replace(draft, tokens=draft.tokens[:n], parents=draft.parents[:n], roles=None)
    assert torch.equal(scored(model, draft)[0][:n], scored(model, without)[0])
