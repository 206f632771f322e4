"""Every pair of what a request may ask for, together: the text under speculation is plain decoding's.

The table is `features.py`. Each pair is asked by itself, of one drafter in turn, and random handfuls of all. That a
feature does something is checked alone: its text differs from the text without it.
"""

from itertools import combinations
from random import Random

import pytest
from contracts.features import FEATURES, asked, together

from outdraft import LLM
from outdraft.engine.callers.result import all_whole

PROMPTS = (
    "It was late in the evening when the letter came. She opened it and",
    "The cat sat on the mat. The dog sat on the log. The cat sat on the mat. The dog sat on the",
)
LENGTH = 16
DRAFTERS = {
    "look-up": {"drafter": "ngram"},
    "chain": {"draft_model": "zoo:draft", "drafter": {"name": "draft_model", "width": 1}},
    "tree": {"draft_model": "zoo:draft", "drafter": {"name": "draft_model", "width": 2}},
}
PAIRS = [one for pair in combinations(FEATURES, 2) if (one := together(pair)) is not None]
_RNG = Random(0)
HANDFULS = [one for _ in range(40) if (one := together(_RNG.sample(sorted(FEATURES), 6))) is not None]


@pytest.fixture(scope="module")
def plain() -> LLM:
    return LLM("zoo:target", drafter="none")


@pytest.fixture(scope="module")
def texts(plain):
    """What plain decoding writes for every combination."""
    return write(plain, [*PAIRS, *HANDFULS])


def write(llm: LLM, combinations, turns=None):
    """One result for each combination, in few batches; prompts take turns, the combinations' own or `turns`."""
    groups: dict[tuple, list[int]] = {}
    turns = turns or range(len(combinations))
    made = [asked(features, max_tokens=LENGTH) for features in combinations]
    for i, (_, request) in enumerate(made):
        groups.setdefault(tuple(request.items()), []).append(i)
    results = {}
    for request, members in groups.items():
        prompts = [PROMPTS[turns[i] % len(PROMPTS)] for i in members]
        found = all_whole(llm.generate(prompts, [made[i][0] for i in members], use_tqdm=False, **dict(request)))
        results |= dict(zip(members, found, strict=True))
    return [results[i] for i in range(len(made))]


def told(result):
    return [(one.token_ids, one.text, one.finish_reason, one.logprobs, one.prompt_logprobs) for one in result.outputs]


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_pair_writes_plain_decodings_text(name, plain, texts):
    speculating = plain.with_speculation(**DRAFTERS[name], num_speculative_tokens=4, policy="fixed")
    drafted, accepted, turn = 0, 0, list(DRAFTERS).index(name)
    some = [*range(turn, len(PAIRS), len(DRAFTERS)), *range(len(PAIRS), len(texts))]
    asked_for = [(*PAIRS, *HANDFULS)[i] for i in some]
    for i, features, found in zip(some, asked_for, write(speculating, asked_for, some), strict=True):
        wanted = texts[i]
        assert told(found) == told(wanted), f"{name}: {' and '.join(one.name for one in features)}"
        drafted += sum(one.stats.num_draft_tokens for one in found.outputs)
        accepted += sum(one.stats.num_accepted_tokens for one in found.outputs)
    assert accepted > 20, (accepted, drafted)


def test_every_feature_does_something(plain):
    alone = [together([name]) for name in FEATURES]
    without = [[one for one in features if one.name != name] for name, features in zip(FEATURES, alone, strict=True)]
    for (name, feature), given, left in zip(FEATURES.items(), write(plain, alone), write(plain, without), strict=True):
        if feature.shows:
            assert (given.token_ids, given.finish_reason, len(given.outputs)) != (
                left.token_ids,
                left.finish_reason,
                len(left.outputs),
            ), name
        elif name == "logprobs":
            assert given.logprobs is not None and left.logprobs is None
        elif name == "prompt_logprobs":
            assert given.prompt_logprobs is not None and left.prompt_logprobs is None
        elif name == "logprobs_mode":
            assert [one.logprob for one in given.logprobs] != [one.logprob for one in left.logprobs]


def test_all_pairs_are_there():
    paired = {frozenset(pair) for features in PAIRS for pair in combinations([one.name for one in features], 2)}
    excluded = {frozenset(pair) for pair in combinations(FEATURES, 2) if together(pair) is None}
    assert paired | excluded >= {frozenset(pair) for pair in combinations(FEATURES, 2)}
    assert len(HANDFULS) > 20
