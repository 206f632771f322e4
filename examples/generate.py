"""The shortest program: one prompt, one text, and what speculation did for it."""

from outdraft import LLM, SamplingParams

llm = LLM("zoo:target", drafter="draft_model")
result = llm.generate("It was late when", SamplingParams(max_tokens=40))

print(result.text)
print(f"\n{len(result.token_ids)} tokens, {result.stats.tau:.2f} per pass of the target")
