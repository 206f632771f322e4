"""Chunks as they come, and how many of each one's tokens the drafter had guessed."""

from outdraft import LLM, SamplingParams

llm = LLM("zoo:target", drafter="draft_model", num_speculative_tokens=4)
for chunk in llm.stream("def read(path):", SamplingParams(max_tokens=40)):
    guessed = sum(source == "accepted" for source in chunk.sources)
    print(f"{chunk.text!r:40} {guessed} of {len(chunk.token_ids)} guessed")
