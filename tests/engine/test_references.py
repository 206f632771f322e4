"""References from `LLM` to the drafter: what a request may copy from makes it quick, never different."""

import pytest

from outdraft import LLM, SamplingParams
from outdraft.engine.callers.prompts import PromptReader
from outdraft.options.errors import RequestError

PARAMS = SamplingParams(max_tokens=40)


def test_a_reference_is_copied_and_changes_nothing(model_dir):
    prompts = ["the cat", "a dog"]
    plain = LLM(model_dir, dtype="float32", drafter="none").generate(prompts, PARAMS)
    llm = LLM(model_dir, dtype="float32", drafter="llma", num_speculative_tokens=8)
    answer = list(plain[0].token_ids)
    copied = llm.generate(prompts, PARAMS, references=[[3, 4], answer])
    assert [list(out.token_ids) for out in copied] == [list(out.token_ids) for out in plain]
    assert copied[0].stats.num_accepted_tokens >= 30
    alone = llm.generate(prompts, PARAMS)
    assert [list(out.token_ids) for out in alone] == [list(out.token_ids) for out in plain]
    assert sum(out.stats.num_draft_tokens for out in alone) == 0


@pytest.mark.parametrize(
    ("references", "says"),
    [
        ([[3]] * 257, "references: 257 texts in all, and 256 are taken"),
        (["x" * 600_000] * 2, "references: 1200000 characters in all, and 1048576 are taken"),
        ([[3] * 70_000] * 2, "references: 140000 tokens in all, and 131072 are taken"),
    ],
)
def test_so_many_and_no_more_are_read(references, says):
    """Before any of them is tokenized, where their characters tell."""
    with pytest.raises(RequestError, match=says):
        PromptReader(name="m", codec=None).requests(["x"], None, {"references": references})


def test_prompts_of_a_call_have_the_same_references():
    read = PromptReader(name="m", codec=None).requests(
        [{"prompt_token_ids": [i]} for i in (1, 2)], None, {"references": [[3, 4]]}
    )
    assert read[0].references is read[1].references
