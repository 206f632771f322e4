"""How sure the target was of each token, and what it would have written instead."""

from outdraft import LLM, SamplingParams

llm = LLM("zoo:target", drafter="draft_model")
params = SamplingParams(max_tokens=12, temperature=0.8, seed=4, logprobs=2)
result = llm.generate("The old house", params)

for token, source, entry in zip(result.token_ids, result.sources, result.logprobs or (), strict=True):
    rivals = ", ".join(f"{llm.codec.decode([i])!r} {p:.2f}" for i, p in entry.top) if llm.codec else ""
    print(f"{llm.codec.decode([token]) if llm.codec else token!r:14} {entry.logprob:6.2f} {source:10} best: {rivals}")
