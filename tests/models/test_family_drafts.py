"""Every dense family with a draft model of the same family, look-ups, and a network on its states: the text is its own.

The draft model is the target with a little noise, so that long guesses are accepted and cut; the networks hold random
weights, whose guesses are refused. Through PyTorch in float32, and on the native kernels in bfloat16. A chain and a
tree of look-ups, and the two networks, take turns with the families.
"""

from dataclasses import replace

import pytest
import torch
from contracts.sides import random_heads, twin
from kernels.test_stack import FAMILIES, make

from outdraft import LLM, SamplingParams
from outdraft.kernels.library import library
from outdraft.models.files.load import save_model
from tests.helpers.tiny_families import TINY_FAMILIES, tiny_model

PROMPTS = [{"prompt_token_ids": [5, 6, 7, 8] * 4}, {"prompt_token_ids": [9, 3]}]
GREEDY = SamplingParams(max_tokens=12, ignore_eos=True)
SEEDED = SamplingParams(max_tokens=12, ignore_eos=True, temperature=0.7, seed=3)
NETWORKS = ("eagle1", "eagle3")  # on the target's last state, and on states after three of its layers
LOOK_UPS = ("ngram", "recycling")  # a chain, a tree
NATIVE = sorted(set(FAMILIES) - {"gpt_neox"})  # whose files have as many key heads


def drafted_alike(target, directory, drafters):
    """The texts of plain decoding and of each drafter are the same; how many guesses of each were accepted."""
    save_model(target, directory / "target")
    accepted = {}
    with LLM(directory / "target", drafter="none") as plain:
        wanted = [one.token_ids for one in plain.generate(PROMPTS, [GREEDY, SEEDED])]
        for drafter, make_side in drafters.items():
            (directory / drafter).mkdir()
            options = make_side(target, directory / drafter)
            with plain.with_drafter({"name": drafter, **options}, policy="fixed", num_speculative_tokens=4) as llm:
                made = llm.generate(PROMPTS, [GREEDY, SEEDED])
            assert [one.token_ids for one in made] == wanted, drafter
            accepted[drafter] = sum(one.stats.num_accepted_tokens for one in made)
        return accepted, plain.config


def no_side(target, directory):
    return {}


def in_turn(turn, networks=NETWORKS):
    """The drafters that a family meets."""
    network, look_up = networks[turn % len(networks)], LOOK_UPS[turn // 2 % 2]
    return {"draft_model": twin, network: random_heads(network), look_up: no_side}


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_through_pytorch(family, tmp_path):
    target = tiny_model(family, layers=4, dtype=torch.float32)
    accepted, config = drafted_alike(target, tmp_path, in_turn(TINY_FAMILIES.index(family)))
    assert config["exact"] and accepted["draft_model"] > 6


@pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)")
@pytest.mark.parametrize("family", NATIVE)
def test_on_the_native_kernels(family, tmp_path):
    target = make(family)
    target.config = replace(target.config, architecture={"gemma3": "gemma3_text"}.get(family, family))
    accepted, config = drafted_alike(target, tmp_path, in_turn(NATIVE.index(family), NETWORKS[:1]))
    assert config["kernels"] != "pytorch" and accepted["draft_model"] > 6
