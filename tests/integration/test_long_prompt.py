"""A prompt of several chunks through every drafter, on the shipped target as it ships: on the native kernels, if built.

A chunk before the last has no node to judge, so its pass has no logits at all: a case that short prompts never meet.
"""

import pytest
from integration.sides import untrained_heads

from outdraft import LLM, SamplingParams
from outdraft.core.registry import names
from outdraft.drafters.shared.look_up.datastore.build import build_datastore
from outdraft.testing.prompts import PROSE

PARAMS = SamplingParams(max_tokens=8)
CHUNK = 128  # tokens of a prompt that a pass reads


@pytest.fixture(scope="module")
def plain() -> LLM:
    return LLM("zoo:target", drafter="none", max_num_batched_tokens=CHUNK)


@pytest.fixture(scope="module")
def ids(plain) -> list[int]:
    whole = list(plain.encode("\n".join(PROSE)))
    return (whole * (2 * CHUNK // len(whole) + 1))[: 2 * CHUNK - 10]


@pytest.fixture(scope="module")
def wanted(plain, ids) -> tuple[int, ...]:
    return plain.generate({"prompt_token_ids": ids}, PARAMS).token_ids


@pytest.fixture(scope="module")
def heads(tmp_path_factory):
    return untrained_heads(tmp_path_factory.mktemp("heads"))


@pytest.mark.parametrize("drafter", names("drafter"))
def test_a_prompt_of_two_chunks(plain, ids, wanted, heads, drafter, tmp_path):
    options = heads.get(drafter, {})
    if drafter == "rest":
        options["datastore"] = str(tmp_path / "store")
        build_datastore(tmp_path / "store", [ids], plain.codec)
    llm = plain.with_drafter({"name": drafter, **options}, num_speculative_tokens=3)
    both = llm.generate([{"prompt_token_ids": ids}, {"prompt_token_ids": ids[: CHUNK + 30]}], PARAMS)
    assert both[0].token_ids == wanted
