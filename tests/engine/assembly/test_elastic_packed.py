"""Elastic precision where PyTorch keeps 4 bits packed, as on CUDA: here with the CPU's operator."""

from itertools import chain, repeat

import pytest
import torch

from outdraft import LLM, SamplingParams
from outdraft.engine.assembly.elastic import device_memory
from outdraft.engine.assembly.memory import Memory
from outdraft.engine.assembly.variant import network_of
from outdraft.models.files.load import save_model
from outdraft.nn.quant.linear import QuantLinear
from outdraft.nn.quant.rounded import RoundedMap
from outdraft.options.errors import CapabilityError
from outdraft.testing.tiny import random_decoder, tiny_config

PROMPT = {"prompt_token_ids": [1, 2, 3, 1, 2, 3, 1]}
GREEDY = SamplingParams(max_tokens=24)


@pytest.fixture
def target(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTDRAFT_KERNELS", "off")
    monkeypatch.setattr(RoundedMap, "packs_on", ("cuda", "cpu"))
    shape = tiny_config(hidden=128, inner=128, layers=4)
    save_model(random_decoder(shape, dtype=torch.bfloat16, exact=False, seed=3), tmp_path)
    return tmp_path


def test_a_model_goes_down_and_up_through_pytorch(target):
    llm = LLM(target, precision="elastic", exact=False, drafter="ngram", num_speculative_tokens=3)
    frees = chain((90, 1, 90), repeat(90))
    llm.engine.ladder.read = lambda: Memory(free=next(frees) * 10**9, total=100 * 10**9)
    made, held = [], []
    for _ in range(3):
        made.append(llm.generate(PROMPT, GREEDY))
        network = network_of(llm.engine.parts)
        held.append([one.small is not None for one in network.modules() if isinstance(one, QuantLinear)])
    assert [one.variant for one in made] == ["", "int4-g32-mixed", ""] and llm.config["kernels"] == "pytorch"
    assert [len(one) for one in held] == [0, 8, 0] and all(held[1]), "two layers of four maps each are packed"
    for name, result in (("full", made[0]), ("mixed", made[1]), ("full", made[2])):
        plain = LLM(target, precision=name, exact=False, drafter="none")
        assert result.token_ids == plain.generate(PROMPT, GREEDY).token_ids
    assert made[0].token_ids != made[1].token_ids


@pytest.mark.parametrize(
    ("options", "packs_on", "why"),
    [
        ({"exact": True}, ("cpu",), "exact=True"),
        ({"exact": False, "dtype": "float32"}, ("cpu",), "bfloat16 rows, not float32"),
        ({"exact": False}, ("cuda",), "on cuda only"),
    ],
)
def test_where_four_bits_would_be_floats_it_is_refused(target, monkeypatch, options, packs_on, why):
    monkeypatch.setattr(RoundedMap, "packs_on", packs_on)
    with pytest.raises(CapabilityError, match=f"PyTorch.*{why}"):
        LLM(target, precision="elastic", **options)


def test_a_gpus_memory_is_what_the_device_says_and_what_pytorch_keeps(monkeypatch):
    for name, value in (("mem_get_info", (10, 100)), ("memory_reserved", 50), ("memory_allocated", 20)):
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    assert device_memory(torch.device("cuda")) == Memory(free=40, total=100)
