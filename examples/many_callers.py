"""Many callers, one engine: concurrent requests share the batch, each gets its own text."""

import asyncio

from outdraft import LLM, SamplingParams


async def main() -> None:
    """Three requests at once."""
    llm = LLM("zoo:target", drafter="ngram")
    prompts = ["The first day", "class Reader:", "A storm came"]
    params = SamplingParams(max_tokens=24)
    results = await asyncio.gather(*(llm.agenerate(prompt, params) for prompt in prompts))
    for prompt, result in zip(prompts, results, strict=True):
        print(f"{prompt}|{result.text}\n")


asyncio.run(main())
