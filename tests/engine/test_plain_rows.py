"""The guard's bound: asked for, by type, or none where rows do not depend on the pass; and rows that are replayed."""

from dataclasses import replace

import pytest
import torch
from drafters.drafting import sequence

from outdraft import LLM
from outdraft.core.draft import Draft, chain
from outdraft.core.packing import pack
from outdraft.engine.runner import Runner
from outdraft.models.target.open_network import find_bound
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import tiny_model

PROMPT = [7, 3, 9, 9, 1]
TREE = Draft(tokens=torch.tensor([1, 4, 5, 6]), parents=torch.tensor([-1, 0, 0, 2]))


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-3), (torch.bfloat16, 0.0), (torch.float64, 0.0)])
def test_the_default_goes_by_type(dtype, bound):
    assert find_bound(tiny_model(dtype=dtype, exact=False), None) == bound


def test_what_is_asked_for_holds_unless_rows_are_exact():
    assert find_bound(tiny_model(exact=False), 0.25) == 0.25
    assert find_bound(tiny_model(dtype=torch.float32, exact=False), 0.0) == 0.0
    assert find_bound(tiny_model(exact=True), 0.25) == 0.0


@pytest.mark.parametrize("asked", [-0.1, float("nan"), float("inf")])
def test_a_bound_is_a_distance(asked, model_dir):
    with pytest.raises(ConfigError, match="guard="):
        find_bound(tiny_model(), asked)
    with pytest.raises(ConfigError, match="guard="):
        LLM(model_dir, guard=asked)


@pytest.mark.parametrize("asked", [0, 0.25])
def test_a_bound_is_asked_for_at_the_front_door(asked, model_dir):
    assert LLM(model_dir, dtype="float32", exact=False, guard=asked).config["guard"] == asked


@pytest.fixture
def runner():
    return Runner(tiny_model(dtype=torch.float32, exact=False), exact=False)


def begun(runner, prompt=PROMPT, embeds=None):
    seq = sequence(prompt)
    seq.request = replace(seq.request, prompt_embeds=embeds)
    runner.begin(seq)
    return seq


def read(runner, seq):
    """All but the last token of the prompt."""
    runner.forward(pack([seq], [None]))
    runner.commit(seq, range(len(seq.tokens) - 1))
    seq.num_cached = len(seq.tokens) - 1


def row(runner, seq):
    """Logits behind the pending token, in a pass of its own."""
    scored = runner.forward(pack([seq], [chain([seq.pending])]))
    assert not scored.drifted
    runner.commit(seq, [0])
    seq.num_cached += 1
    return scored.logits[0]


@torch.inference_mode()
def test_a_replayed_path_is_plain_decodings_and_so_is_what_follows_it(runner):
    seq, alone = begun(runner), begun(runner)
    wanted = []
    read(runner, alone)
    for token in (5, 6, 8):
        wanted.append(row(runner, alone))
        alone.tokens.append(token)
    read(runner, seq)
    packed = pack([seq], [TREE])
    assert runner.forward(packed).drifted == {0}
    for node, logits in ((2, wanted[1]), (3, wanted[2])):  # as far as the target follows it
        assert torch.equal(runner.replay(packed, 0, node).logits, logits)
    runner.commit(seq, [0, 2])
    assert runner.cache.length(seq.id) == 6
    seq.tokens += [5, 6]
    seq.num_cached = 6
    assert torch.equal(row(runner, seq), wanted[2])


@torch.inference_mode()
def test_a_prompts_own_vectors_are_replayed(runner):
    others = [7, 22, 23, 9, 24]
    vectors = runner.decoder.embed(torch.tensor(others), torch.arange(len(others)))
    texts = []
    for seq in (begun(runner, embeds=vectors), begun(runner, others), begun(runner)):
        packed = pack([seq], [Draft(tokens=torch.tensor([seq.pending, 4]), parents=torch.tensor([-1, 0]))])
        assert runner.forward(packed).drifted == {0}
        replayed = runner.replay(packed, 0, 1)
        assert replayed.num_rows == len(PROMPT) + 1
        texts.append(replayed.logits)
    assert torch.equal(texts[0], texts[1]) and not torch.allclose(texts[0], texts[2], atol=1e-2)
