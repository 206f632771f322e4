"""A seed is a text: whatever drafts it, however far, alone or in a batch."""

from outdraft import LLM, SamplingParams

PROMPTS = ["It was late when", "import os", "The sea"]
params = [SamplingParams(max_tokens=30, temperature=1.0, seed=seed) for seed in (1, 2, 3)]

plain = LLM("zoo:target", drafter="none")
texts = [plain.generate(prompt, setting).text for prompt, setting in zip(PROMPTS, params, strict=True)]
print(*texts, sep="\n---\n")

for drafter, k in (("ngram", 3), ("lookahead", 4), ("draft_model", 6)):
    speculative = plain.with_drafter(drafter, num_speculative_tokens=k)
    batch = speculative.generate(PROMPTS, params)
    print(drafter, k, "identical" if [result.text for result in batch] == texts else "DIFFERENT")
