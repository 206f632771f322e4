"""The random requests of a case: prompts as ids, and sampling settings as plain data that a failure can be reported in.

Data in: a `random.Random` and what the model's vocabulary is; data out: `Ask`s.
"""

import json
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import islice
from random import Random
from typing import Any

from outdraft import SamplingParams
from outdraft.sampling.masks import never_written
from outdraft.testing.prompts import CODE, COPIES, PROSE, library_pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request. `settings`: keyword arguments of `SamplingParams`."""

    prompt: tuple[int, ...]
    settings: dict[str, Any]
    depth: int | None = None  # the request's own num_speculative_tokens
    leaves_after: int | None = None  # it is cancelled after so many chunks
    negative: tuple[int, ...] | None = None  # the prompt that guidance leads away from; None: the default

    @property
    def num_held(self) -> int:
        """Tokens that memory holds of it at most; of a guided text, those of both."""
        own: int = len(self.prompt) + self.settings["max_tokens"]
        if "guidance_scale" not in self.settings:
            return own
        beside = 1 if self.negative is None else len(self.negative)
        return own + beside + int(self.settings["max_tokens"]) + 16

    @property
    def params(self) -> SamplingParams:
        """As the engine takes them."""
        return SamplingParams(**self.settings)

    def tell(self) -> dict[str, Any]:
        """Plain data, for a record."""
        return asdict(self)


GUIDED, STRUCTURED = 0.06, 0.06  # of the requests that only plain decoding answers for
FORMS: tuple[dict[str, Any], ...] = (  # of letters that every model here spells, and without "d", which ends texts
    {"regex": "[abcef]{2,9}"},
    {"regex": "(ab|ce)+f?"},
    {"choice": ["abc", "abe", "bac", "bace"]},
    {"regex": "ba{3,20}c[abc]*"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """What prompts and stop strings are made of."""

    vocab_size: int
    stops: tuple[str, ...]
    texts: tuple[tuple[int, ...], ...] = field(default=(), repr=False)  # to cut prompts from; none: random ids
    longest: int = 24  # tokens of an answer
    ends: tuple[int, ...] = ()  # ids that end a text
    room: int = 620  # tokens of prompt and answer together


_BESIDE_FORMS = ("max_tokens", "temperature", "seed", "top_k", "top_p", "presence_penalty", "logprobs", "ignore_eos")


def draw_prompt(rng: Random, language: Language) -> tuple[int, ...]:
    """Short and long, wandering and repeating; now and then longer than the 512 tokens that one pass reads."""
    if language.texts:
        text = rng.choice(language.texts)
        start = rng.choice((0, 0, rng.randrange(len(text))))
        ids = text[start : start + rng.randint(1, 60)]
    else:
        few = rng.choice((language.vocab_size, language.vocab_size, 5))
        ids = tuple(rng.randrange(few) for _ in range(rng.randint(1, 24)))
    repeats = rng.choice((1, 1, 1, 2, 3))
    if rng.random() < 0.02:
        repeats = 1 + 530 // len(ids)
    return (ids * repeats)[: language.room - language.longest]


def draw_settings(rng: Random, language: Language, *, seeded: bool, edits: float, logprobs: bool) -> dict[str, Any]:
    """`edits`: the chance of each option that changes logits or ends a text."""

    def now_and_then() -> bool:
        return rng.random() < edits

    settings: dict[str, Any] = {"max_tokens": rng.randint(1, language.longest)}
    if seeded:
        settings |= {"temperature": rng.choice((0.3, 0.7, 1.0, 1.0, 1.4)), "seed": rng.randrange(1 << 40)}
        if now_and_then():
            settings["top_k"] = rng.choice((1, 2, 5, 20, 10_000))
        if now_and_then():
            settings["top_p"] = rng.choice((0.05, 0.5, 0.9, 0.99))
        if now_and_then():
            settings["min_p"] = rng.choice((0.01, 0.1, 0.4))
        if now_and_then():
            settings["typical_p"] = rng.choice((0.1, 0.5, 0.9, 0.99))
    if now_and_then():
        settings["repetition_penalty"] = rng.choice((0.8, 1.1, 1.5))
    if now_and_then():
        settings["presence_penalty"] = rng.choice((-0.5, 0.4, 1.5))
    if now_and_then():
        settings["frequency_penalty"] = rng.choice((-0.3, 0.2, 0.8))
    if now_and_then():
        chosen = rng.sample(range(language.vocab_size), rng.randint(1, 4))
        settings["logit_bias"] = {token: rng.choice((-100.0, -2.0, 1.0, 4.0)) for token in chosen}
    if now_and_then():
        settings["min_tokens"] = rng.randint(0, settings["max_tokens"])
    if now_and_then():
        settings["stop"] = rng.sample(language.stops, rng.randint(1, 3))
    if now_and_then():
        settings["stop_token_ids"] = rng.sample(range(language.vocab_size), rng.randint(1, 3))
    if now_and_then():
        settings["banned_token_ids"] = rng.sample(range(language.vocab_size), rng.randint(1, 3))
    if now_and_then():
        few = rng.choice((5, language.vocab_size))  # words that come about, and words of any tokens
        settings["bad_words"] = [
            [rng.randrange(few) for _ in range(rng.randint(1, 3))] for _ in range(rng.randint(1, 4))
        ]
    if now_and_then():
        settings["allowed_token_ids"] = rng.sample(range(language.vocab_size), language.vocab_size * 3 // 4)
    if now_and_then() and edits:
        settings["forced_prefix"] = _prefix(rng, language, settings)
    settings["ignore_eos"] = rng.random() < 0.5
    if logprobs and rng.random() < 0.3:
        settings["logprobs"] = rng.randint(0, 3)
    return settings


def _prefix(rng: Random, language: Language, settings: dict[str, Any]) -> list[int]:
    """Up to four tokens that the other settings leave; none of them ends a text."""
    params = SamplingParams(**{name: value for name, value in settings.items() if name != "stop"})
    never = never_written(params) | {*params.stop_token_ids, *language.ends}
    may = [token for token in params.allowed_token_ids or range(language.vocab_size) if token not in never]
    # A bad word of several tokens is avoided by tokens that are in none.
    may = [token for token in may if all(token not in word for word in params.bad_word_ids)]
    return [rng.choice(may) for _ in range(rng.randint(1, min(4, settings["max_tokens"])))] if may else []


def draw_ask(
    rng: Random, language: Language, *, seeded: bool, edits: float = 0.15, logprobs: bool = False, leaves: bool = False
) -> Ask:
    """One request; `leaves`: it goes away before its end, if the text is long enough."""
    return Ask(
        prompt=draw_prompt(rng, language),
        settings=draw_settings(rng, language, seeded=seeded, edits=edits, logprobs=logprobs),
        leaves_after=rng.randint(0, 3) if leaves else None,
    )


def steered(rng: Random, language: Language, ask: Ask) -> Ask:
    """The same request; now and then it is guided, or the form of its answer is given."""
    fate = rng.random()
    if fate < GUIDED:
        negative = draw_prompt(rng, language) if rng.random() < 0.7 else None
        scale = rng.choice((0.0, 0.5, 1.5, 3.0))
        return replace(ask, negative=negative, settings={**ask.settings, "guidance_scale": scale})
    if fate < GUIDED + STRUCTURED:
        kept = {name: ask.settings[name] for name in _BESIDE_FORMS if name in ask.settings}
        return replace(ask, settings={**kept, "structured_outputs": rng.choice(FORMS)})
    return ask


@cache
def zoo_texts() -> tuple[str, ...]:
    """Prose, code and copies, pieces of the standard library, and the zoo's held-out prompts."""
    lines = files("outdraft.zoo").joinpath("heldout.jsonl").read_text("utf-8").splitlines()
    held_out = [value for line in lines for value in json.loads(line).values() if isinstance(value, str)]
    return (*PROSE, *CODE, *COPIES, *islice(library_pieces(), 40), *(text for text in held_out if len(text) > 20))
