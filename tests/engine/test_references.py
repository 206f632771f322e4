"""References from `LLM` to the drafter: what a request may copy from makes it quick, never different."""

from outdraft import LLM, SamplingParams

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
