"""The promise on the models that ship: same seed, same text, whatever drafts it, how far, and who else is in the batch.

float32, temperature 1, every drafter: k = 4, four of seven unequal prompts as one batch, one alone. With `-m slow`
longer texts in three other k of 1..8; prompts and k go round, so that every k meets every prompt and many drafters.
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
DEPTHS = (1, 2, 3, 5, 6, 7, 8)
TOGETHER = 4


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
    plain: LLM, wanted: list[tuple[int, ...]], drafter: str, own: dict[str, str], depth: int, num_tokens: int, turn: int
) -> None:
    """Prompts `turn` and the three after it as one batch, and the last of these alone."""
    llm = plain.with_drafter({"name": drafter, **own}, num_speculative_tokens=depth)
    params = settings(num_tokens)
    batch = [(turn + i) % len(PROMPTS) for i in range(TOGETHER)]
    together = llm.generate([PROMPTS[i] for i in batch], [params[i] for i in batch])
    assert [r.token_ids for r in together] == [wanted[i] for i in batch], f"{drafter}, k={depth}, batch of {batch}"
    alone = batch[-1]
    assert llm.generate(PROMPTS[alone], params[alone]).token_ids == wanted[alone], (
        f"{drafter}, k={depth}, {alone} alone"
    )


COSTLY = ("specexec",)  # a tree of 256 nodes in every round
QUICK = [pytest.param(name, marks=[pytest.mark.slow] * (name in COSTLY)) for name in names("drafter")]
LONG = [
    (name, DEPTHS[(i + 2 * j) % len(DEPTHS)], 3 * i + j) for i, name in enumerate(names("drafter")) for j in range(3)
]


@pytest.mark.parametrize("drafter", QUICK)
def test_same_seed_same_text(plain, wanted, options, drafter):
    check(plain, wanted(12), drafter, options.get(drafter, {}), 4, 12, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("drafter", "depth", "turn"), LONG)
def test_same_seed_same_text_long(plain, wanted, options, drafter, depth, turn):
    check(plain, wanted(32), drafter, options.get(drafter, {}), depth, 32, turn)


def test_every_depth_meets_every_prompt_and_many_drafters():
    met = {(depth, (turn + i) % len(PROMPTS)) for _, depth, turn in LONG for i in range(TOGETHER)}
    assert len(met) == len(DEPTHS) * len(PROMPTS)
    assert all(sum(one == depth for _, one, _ in LONG) >= len(LONG) // 9 for depth in DEPTHS)


def test_another_seed_is_another_text(plain, wanted):
    """The comparison above can fail."""
    other = SamplingParams(max_tokens=12, temperature=1.0, seed=7, ignore_eos=True)
    assert plain.generate(PROMPTS[0], other).token_ids != wanted(12)[0]
