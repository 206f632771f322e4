"""A case number to everything that the case is made of: a pure function, so that a failure is repeated by its number.

Of twenty cases seven are greedy and two seeded against `transformers`, the others against plain decoding in every
variant that the engine has. About a quarter run on the zoo. Of three in ten the prompts are read in slices of layers.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from lab.fuzz.asks import Ask, Language, draw_ask, steered
from lab.fuzz.models import PACKABLE, TINY, ZOO

GREEDY, SEEDED, PLAIN = "greedy", "seeded", "plain"
KINDS = (GREEDY, PLAIN, PLAIN, GREEDY, PLAIN, SEEDED, PLAIN, GREEDY, PLAIN, PLAIN) * 2
KINDS = (*KINDS[:-1], GREEDY)  # 7 greedy, 2 seeded, 11 against plain decoding
ZOO_SHARE = 0.31  # a fifth of the texts at least are wanted, and some cases of it are refused
OWN_SHARE = 0.12  # of cases whose requests say themselves how they are drafted
SHAPES = ("batch", "batch", "alone", "streams", "threads", "async")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A way to run a model: number format, kernels, cache, memory."""

    words: Mapping[str, Any]  # what `LLM` is given
    plain: Mapping[str, Any] | None = None  # what the engine without a drafter is given, if that is something else
    is_native: bool = False  # only for models that the native kernels can pack
    rounding: str = ""
    kernels: str = ""  # OUTDRAFT_KERNELS of the process that runs it


BF16 = {"dtype": "bfloat16"}
VARIANTS: Mapping[str, Variant] = {
    "float32": Variant(words={"dtype": "float32"}),
    "bf16": Variant(words=BF16),
    "int8": Variant(words=BF16, rounding="int8"),
    "int4": Variant(words=BF16, is_native=True, rounding="int4"),
    "paged": Variant(words={**BF16, "kv_cache": "paged"}),
    "paged-float32": Variant(words={"dtype": "float32", "kv_cache": "paged"}),
    "kv-int8": Variant(words={**BF16, "kv_cache_dtype": "int8"}),
    "kv-int8-paged": Variant(words={**BF16, "kv_cache": "paged", "kv_cache_dtype": "int8"}),
    "guard": Variant(words={"dtype": "float32", "exact": False}),
    "elastic-full": Variant(
        words={**BF16, "precision": "elastic", "precision_options": {"min_free": 1e-6}}, plain=BF16, is_native=True
    ),
    "elastic-mixed": Variant(
        words={**BF16, "precision": "elastic", "precision_options": {"min_free": 0.99}},
        plain={**BF16, "precision": "mixed"},
        is_native=True,
    ),
    "streamed": Variant(words=BF16, is_native=True),
    "short-context": Variant(words={**BF16, "max_model_len": 40}),
    "kernels-off": Variant(words=BF16, kernels="off"),
    "kernels-off-int8": Variant(words=BF16, rounding="int8", kernels="off"),
    "kernels-off-kv-int8": Variant(words={**BF16, "kv_cache": "paged", "kv_cache_dtype": "int8"}, kernels="off"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One engine under test, and what it is asked."""

    number: int
    kind: str
    model: str  # a name of `models.Models`, rounding included
    variant: str
    drafter: str
    row: int  # picks among the ways to build this drafter
    depth: int  # num_speculative_tokens
    policy: str | None  # None: the fixed depth
    own: Mapping[str, Any] | None  # what its requests say of speculation; "arm" picks among the methods held
    shape: str
    max_num_seqs: int
    pages: int | None  # of memory, for the engine under test: hardly more than the longest text takes; None: no limit
    prefixes: bool  # and whether texts take over rows of earlier ones
    slices: bool  # prompts beside other texts are read in slices of layers, where rows allow it
    shows_answers: bool  # datastores and references hold the plain texts of this case
    again: bool  # everything is asked a second time, of a drafter that has seen it
    asks: tuple[Ask, ...]
    leavers: tuple[Ask, ...]  # neighbours that go away

    @property
    def kernels(self) -> str:
        """OUTDRAFT_KERNELS of the process that has to run it."""
        return VARIANTS[self.variant].kernels


def plan_case(
    number: int, seed: int, drafters: Seq[str], policies: Seq[str], languages: Mapping[str, Language]
) -> Case:
    """Case `number` of the run with this base seed. `languages`: of "zoo" and of "tiny"."""
    rng = Random(f"{seed}/{number}")
    kind = KINDS[number % len(KINDS)]
    variant = "float32" if kind != PLAIN else rng.choice(list(VARIANTS))
    on_zoo = rng.random() < ZOO_SHARE
    model = ZOO if on_zoo else rng.choice(PACKABLE if VARIANTS[variant].is_native else TINY)
    if VARIANTS[variant].rounding:
        model = f"{model}@{VARIANTS[variant].rounding}"
    language = languages[ZOO if on_zoo else "tiny"]
    if "max_model_len" in VARIANTS[variant].words:
        language = replace(language, room=language.longest + 30)  # prompts fit, most answers do not
    shape = rng.choice(SHAPES)
    exact = kind == PLAIN and variant != "guard"

    def ask(leaves: bool = False) -> Ask:
        seeded = kind == SEEDED or (kind == PLAIN and rng.random() < 0.6)
        edits = 0.0 if kind == GREEDY and rng.random() < 0.5 else 0.15
        return draw_ask(rng, language, seeded=seeded, edits=edits, logprobs=exact, leaves=leaves)

    asks = tuple(ask() for _ in range(rng.choice((1, 2, 4, 6, 8, 12))))
    if kind == PLAIN:  # `transformers` is not asked what these write
        steering = Random(f"{seed}/{number}/steered")
        asks = tuple(steered(steering, language, one) for one in asks)
    leavers = (
        tuple(ask(leaves=True) for _ in range(rng.choice((0, 0, 1, 2)))) if shape not in ("batch", "alone") else ()
    )
    longest = max(one.num_held for one in (*asks, *leavers))
    memory, words = Random(f"{seed}/{number}/memory"), Random(f"{seed}/{number}/words")
    is_tight = VARIANTS[variant].plain is None and variant != "streamed" and memory.random() < 0.4
    return Case(
        number=number,
        kind=kind,
        model=model,
        variant=variant,
        drafter=rng.choice(list(drafters)),
        row=rng.randrange(1 << 16),
        depth=rng.randint(1, 8),
        policy=rng.choice(list(policies)) if rng.random() < 0.3 else None,
        shape=shape,
        own=_own_words(words) if words.random() < OWN_SHARE else None,
        max_num_seqs=Random(f"{seed}/{model}/{variant}").choice((2, 64)),
        shows_answers=rng.random() < 0.4,
        pages=-(-longest // 16) + memory.randrange(1, 5) if is_tight else None,
        prefixes=memory.random() < 0.6,
        slices=memory.random() < 0.3,
        again=rng.random() < 0.15,
        asks=asks,
        leavers=leavers,
    )


def _own_words(rng: Random) -> Mapping[str, Any]:
    """Settings under which a greedy or seeded text stays what it is."""
    return {
        "arm": rng.randrange(64),
        "num_speculative_tokens": rng.choice((None, 0, 1, 4, 9)),
        "policy": rng.choice((None, "fixed")),
        "verifier": rng.choice((None, "auto", "coupled")),
    }
