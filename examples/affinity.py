"""Requests of six tasks over three engines: sent where they are warm, or in turn. No text changes, only what it costs.

A task has a long beginning of its own and a few questions that come again and again, as templates and agents have them.
"""

import random
import sys

from outdraft import LLM, SamplingParams
from outdraft.server.fleet.affinity import Affinity
from outdraft.server.fleet.route_key import route_key

ENGINES, WAVE = ["a", "b", "c"], 6
TASKS = ["letters", "journeys", "storms", "dinners", "quarrels", "gardens"]
QUESTIONS = ["On the first day", "She wrote that", "The old man said", "Nobody knew", "In the end"]
PARAMS = SamplingParams(max_tokens=32)


def make_requests(seed: int, count: int) -> list[dict]:
    """Prompts in the order in which they come."""
    draw = random.Random(seed)
    begin = {task: f"This is a book of {task}, and it is about {task} alone. " * 6 for task in TASKS}
    drawn = [(draw.choice(TASKS), draw.choice(QUESTIONS)) for _ in range(count)]
    return [{"prompt": begin[task] + question, "prompt_cache_key": task} for task, question in drawn]


def run(requests: list[dict], *, warm: bool) -> tuple[list[str], float, float]:
    """Texts, tokens a pass of the target, and the share of prompt tokens that the cache had. A wave runs at a time."""
    settings = {"drafter": "suffix", "num_speculative_tokens": 8, "enable_prefix_caching": True}
    engines = {name: LLM("zoo:target", **settings) for name in ENGINES}
    affinity, found = Affinity(), {}
    for start in range(0, len(requests), WAVE):
        placed: dict[str, list[int]] = {name: [] for name in ENGINES}
        for i, request in list(enumerate(requests))[start : start + WAVE]:
            key = route_key(request)
            place = affinity.rank(key, ENGINES)[0] if warm else ENGINES[i % len(ENGINES)]
            affinity.sent(key, place)
            placed[place].append(i)
        for name, asked in placed.items():
            results = engines[name].generate([requests[i]["prompt"] for i in asked], PARAMS)
            found.update(zip(asked, results, strict=True))
            for _ in asked:
                affinity.done(name)
    written = [found[i] for i in range(len(requests))]
    passes, read = sum(one.stats.num_steps for one in written), sum(len(one.prompt_token_ids) for one in written)
    tau = sum(len(one.token_ids) for one in written) / passes
    return [one.text for one in written], tau, sum(one.num_cached_tokens for one in written) / read


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 48
    for seed in range(int(sys.argv[2]) if len(sys.argv) > 2 else 1):
        texts, tau, hits = run(make_requests(seed, count), warm=False)
        same, warm_tau, warm_hits = run(make_requests(seed, count), warm=True)
        print(f"in turn           {tau:.2f} tokens a pass, {hits:.0%} of prompt tokens from the cache")
        print(f"where it is warm  {warm_tau:.2f} tokens a pass, {warm_hits:.0%} of prompt tokens from the cache")
        print("the texts are", "the same" if texts == same else "DIFFERENT")
