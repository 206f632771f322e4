"""The draft-review account on one model, every mechanism with what it came to: `draft_review.py [MODEL [DRAFT]]`.

Each prompt is answered twice. What the first answers showed is the record by which the second ones are diagnosed.
"""

import sys
from collections import Counter
from collections.abc import Sequence as Seq

from outdraft import LLM, SamplingParams
from outdraft.adapt.acceptance_record import AcceptanceRecord
from outdraft.adapt.diagnose import diagnose
from outdraft.adapt.observe import Observed
from outdraft.core.drafter import Seen
from outdraft.options.errors import CapabilityError

PROMPTS = """It was late when|The captain said|Binary search works by|def fibonacci(n):|In spring the farmer
Once upon a time|The capital of France is|To bake bread,|Dear Sir,|A planet moves because""".replace("\n", "|")
model, draft = [*sys.argv[1:], *("zoo:target", "zoo:draft")[len(sys.argv) - 1 :]][:2]
words = {"drafter": "recipe:draft_review", "draft_model": draft}
try:
    llm = LLM(model, precision="elastic", **words)
except CapabilityError as error:  # its file is rounded already
    print(f"no elastic precision: {error}\n")
    llm = LLM(model, **words)

parts, lengths, first_rejections, runs = llm.engine.parts, Counter[int](), Counter[int](), list[Observed]()
observe = parts.drafter.observe


def seen(several: Seq[Seen]) -> None:
    """The drafter's verified guesses, with the target's logits."""
    for one in several:
        runs[-1].add(one)
    observe(several)


parts.drafter.observe = seen
for seed in range(2):
    runs.append(Observed())
    for prompt in PROMPTS.split("|"):
        result = llm.generate(prompt, SamplingParams(max_tokens=160, temperature=0.8, seed=seed, ignore_eos=True))
        lengths.update(drafted for drafted, _ in result.stats.per_step)
        first_rejections.update(dict(enumerate(result.stats.first_rejection_histogram, 1)))

whole = runs[0].whole + runs[1].whole
print("rule                ", llm.config["verifier"])
print("guesses by length   ", dict(sorted(lengths.items())))
print("fallback            ", parts.policy.counts)
print("first rejection at  ", dict(sorted(first_rejections.items())))
print("accepted by position", [round(share, 2) for share in whole.acceptance])
print("marginal acceptance ", [round(share, 2) for share in whole.nearness])
print("diagnosis           ", diagnose(runs[1], AcceptanceRecord.of(runs[0])).sentence)
print("precision           ", llm.config.get("precision", {}).get("level", "as it is"), "->", result.variant or "full")
