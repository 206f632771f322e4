"""The promise on the models that ship: same seed, same text, whatever drafts it, how far, and who else is in the batch.

float32, temperature 1, every drafter, k = 1..8, each of seven unequal prompts alone and all seven as one batch. Where
slow tests do not run: k = 4, four prompts as one batch, one alone.
"""

from collections.abc import Callable
from functools import cache

import pytest
from integration.sides import untrained_heads

from outdraft import LLM, SamplingParams
from outdraft.core.registry import names
from outdraft.drafters.shared.look_up.datastore.build import build_datastore

PROMPTS = [
    "The",
    "It was a dark and stormy night, and the captain had not yet returned to",
    'def read(self, size=-1):\n    """Read and return up to size bytes.',
    "one two three one two three one two three one two three one two",
    "PEP: 3107\nTitle: Function Annotations\nVersion:",
    '"Well!" said Alice to herself, "after such a fall as this, I shall think nothing of tumbling down stairs! ' * 3,
    "import os\nimport sys\n\nclass Reader(object):\n" * 4,
]
DEPTHS = range(1, 9)


def settings(num_tokens: int) -> list[SamplingParams]:
    return [
        SamplingParams(max_tokens=num_tokens + 3 * i, temperature=1.0, seed=100 + i, ignore_eos=i % 2 == 0)
        for i in range(len(PROMPTS))
    ]


@pytest.fixture(scope="module")
def plain() -> LLM:
    return LLM("zoo:target", drafter="none", dtype="float32")


@pytest.fixture(scope="module")
def wanted(plain) -> Callable[[int], list[tuple[int, ...]]]:
    """Plain decoding, each prompt alone, of so many tokens."""
    return cache(lambda n: [plain.generate(p, s).token_ids for p, s in zip(PROMPTS, settings(n), strict=True)])


@pytest.fixture(scope="module")
def options(plain, tmp_path_factory) -> dict[str, dict[str, str]]:
    """What a drafter cannot do without: a datastore of the prompts, heads."""
    path = tmp_path_factory.mktemp("store") / "prompts"
    build_datastore(path, [list(plain.encode(prompt)) for prompt in PROMPTS], plain.codec)
    return {"rest": {"datastore": str(path)}, **untrained_heads(path.parent)}


def check(
    plain: LLM,
    wanted: list[tuple[int, ...]],
    drafter: str,
    own: dict[str, str],
    depth: int,
    num_tokens: int,
    batch: slice = slice(None),
    alone: slice = slice(None),
) -> None:
    llm = plain.with_drafter({"name": drafter, **own}, num_speculative_tokens=depth)
    params = settings(num_tokens)
    together = llm.generate(PROMPTS[batch], params[batch])
    assert [r.token_ids for r in together] == wanted[batch], f"{drafter}, k={depth}, batch of {len(together)}"
    for prompt, setting, ids in list(zip(PROMPTS, params, wanted, strict=True))[alone]:
        assert llm.generate(prompt, setting).token_ids == ids, f"{drafter}, k={depth}, alone: {prompt[:30]!r}"


COSTLY = ("specexec",)  # a tree of 256 nodes in every round
QUICK = [pytest.param(name, marks=[pytest.mark.slow] * (name in COSTLY)) for name in names("drafter")]


@pytest.mark.parametrize("drafter", QUICK)
def test_same_seed_same_text(plain, wanted, options, drafter):
    check(plain, wanted(12), drafter, options.get(drafter, {}), 4, 12, slice(4), slice(3, 4))


@pytest.mark.slow
@pytest.mark.parametrize("drafter", names("drafter"))
@pytest.mark.parametrize("depth", DEPTHS)
def test_same_seed_same_text_long(plain, wanted, options, drafter, depth):
    check(plain, wanted(64), drafter, options.get(drafter, {}), depth, 64)


def test_another_seed_is_another_text(plain, wanted):
    """The comparison above can fail."""
    other = SamplingParams(max_tokens=12, temperature=1.0, seed=7, ignore_eos=True)
    assert plain.generate(PROMPTS[0], other).token_ids != wanted(12)[0]
