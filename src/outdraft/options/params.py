"""`SamplingParams`: the sampling settings of a request, one frozen record that is checked when it is made.

The names are those that vLLM and the OpenAI API use. `temperature=0` is greedy decoding, which is the one-hot
distribution of the processed logits. `seed` also selects the seed-coupled rule: the text is then the same whatever
drafts it.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from copy import copy
from dataclasses import dataclass
from hashlib import blake2b
from inspect import signature
from math import inf
from typing import Any, Never

from outdraft.options.checked import check_fields
from outdraft.options.errors import RequestError
from outdraft.options.foreign_params import ELSEWHERE, REFUSED, hint
from outdraft.options.limits import ALL_BAD_WORDS, ALL_STOPS, LONGEST_PREFIX, MOST_BIASES, MOST_IDS
from outdraft.options.ranges import LARGEST
from outdraft.options.shown import shown
from outdraft.options.structured import StructuredOutputsParams, read_structured

_MOST_TEXTS = 1024  # of one request
_MOST_GUIDANCE = 100.0  # papers use up to 10
_COOL, _LARGE = 1e-5, 1e6  # numbers between which a temperature, a penalty and a bias leave logits finite


@dataclass(frozen=True, slots=True, init=False)
class SamplingParams:
    """Sampling settings of one request. None stands for a setting that was not made.

    Raises `RequestError` naming the parameter, its value and its range, or the parameter that was probably meant.
    """

    max_tokens: int | None  # None: as many as the context holds
    min_tokens: int
    temperature: float
    top_k: int  # 0 or -1: off, kept as 0
    top_p: float
    min_p: float
    typical_p: float  # locally typical sampling, after top_p; 1: off
    seed: int | None
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    ignore_eos: bool
    logit_bias: Mapping[int, float]  # -inf forbids a token
    banned_token_ids: tuple[int, ...]  # none of these is written
    bad_words: tuple[str | tuple[int, ...], ...]  # as texts or ids: the last token of such a word is not written
    allowed_token_ids: tuple[int, ...] | None  # only these are written: a text ends early only with an end among them
    forced_prefix: str | tuple[int, ...]  # the output begins with this text, or these ids; they count as output
    repetition_penalty: float  # > 1 discourages tokens of prompt and output
    presence_penalty: float  # of output only
    frequency_penalty: float  # of output only, times the count
    guidance_scale: float  # 1: off; above 1 the text keeps closer to its prompt (`sampling/guidance.py`)
    n: int  # texts of the prompt, each a draw of its own; with a seed, text i is that of `seed_of_text(seed, i)`
    logprobs: int | None  # None: off; n: the chosen token's and the n best, of the raw and the warped distribution
    prompt_logprobs: int | None  # None: off; n: of every prompt token but the first, and of the n best in its place
    structured_outputs: StructuredOutputsParams | None  # the form that the answer has; also given as a table

    def __init__(
        self,
        *,
        max_tokens: int | None = 128,
        min_tokens: int | None = 0,
        temperature: float | None = 0.0,
        top_k: int | None = 0,
        top_p: float | None = 1.0,
        min_p: float | None = 0.0,
        typical_p: float | None = 1.0,
        seed: int | None = None,
        stop: str | Seq[str] | None = (),
        stop_token_ids: Seq[int] | None = (),
        ignore_eos: bool | None = False,
        logit_bias: Mapping[int, float] | None = None,
        banned_token_ids: Seq[int] | None = (),
        bad_words: str | Seq[str | Seq[int]] | None = (),
        allowed_token_ids: Seq[int] | None = None,
        forced_prefix: str | Seq[int] | None = "",
        repetition_penalty: float | None = 1.0,
        presence_penalty: float | None = 0.0,
        frequency_penalty: float | None = 0.0,
        guidance_scale: float | None = 1.0,
        n: int | None = 1,
        logprobs: int | None = None,
        prompt_logprobs: int | None = None,
        structured_outputs: StructuredOutputsParams | Mapping[str, Any] | None = None,
        **unknown: Never,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in ("self", "unknown")}
        for name in unknown:
            takes = "" if name in REFUSED or name in ELSEWHERE else f"; it takes {', '.join(given)}"
            raise RequestError(f"SamplingParams takes no {shown(name)}{hint(name, DEFAULTS)}{takes}")
        for name, value in given.items():
            if value is None and name != "max_tokens":
                value = {} if name == "logit_bias" else DEFAULTS[name]
            object.__setattr__(self, name, value)
        for name in ("stop", "bad_words"):
            if isinstance(given[name], str):
                object.__setattr__(self, name, (given[name],))
        if structured_outputs is not None:
            object.__setattr__(self, "structured_outputs", read_structured(structured_outputs))
        made = [name for name, value in given.items() if value is not DEFAULTS[name]]  # defaults fit
        check_fields(self, error=RequestError, only=made)
        words = tuple(word if isinstance(word, str) else tuple(word) for word in self.bad_words)
        object.__setattr__(self, "bad_words", words)
        for name in ("stop", "stop_token_ids", "banned_token_ids", "allowed_token_ids"):
            if (listed := getattr(self, name)) is not None:
                object.__setattr__(self, name, tuple(dict.fromkeys(listed)))
        if self.top_k == -1:
            object.__setattr__(self, "top_k", 0)
        self._check_ranges()

    def _check_ranges(self) -> None:
        most = LARGEST if self.max_tokens is None else self.max_tokens
        self._check("max_tokens", self.max_tokens is None or self.max_tokens >= 1, "at least 1, or None")
        self._check("min_tokens", 0 <= self.min_tokens <= most, "between 0 and max_tokens")
        temperature = self.temperature
        is_usable = temperature == 0 or _COOL <= temperature <= _LARGE
        self._check("temperature", is_usable, f"0 (greedy) or {_COOL:g} to {_LARGE:g}")
        self._check("top_k", 0 <= self.top_k <= LARGEST, "at least 1, or 0 or -1 (off)")
        self._check("top_p", 0 < self.top_p <= 1, "above 0 and at most 1")
        self._check("min_p", 0 <= self.min_p <= 1, "between 0 and 1")
        self._check("typical_p", 0 < self.typical_p <= 1, "above 0 and at most 1 (off)")
        penalty = self.repetition_penalty
        self._check("repetition_penalty", 1 / _LARGE <= penalty <= _LARGE, f"above 0, at most {_LARGE:g} (1: off)")
        for name in ("presence_penalty", "frequency_penalty"):
            self._check(name, abs(getattr(self, name)) <= _LARGE, f"at most {_LARGE:g}, or -{_LARGE:g} (0: off)")
        scale = self.guidance_scale
        self._check("guidance_scale", 0 <= scale <= _MOST_GUIDANCE, f"between 0 and {_MOST_GUIDANCE:g} (1: off)")
        self._check("n", 1 <= self.n <= _MOST_TEXTS, f"between 1 and {_MOST_TEXTS}")
        if self.n > 1 and self.greedy:
            raise RequestError(f"n={self.n} with temperature=0: greedy texts are all the same; set a temperature")
        for name in ("logprobs", "prompt_logprobs"):
            count = getattr(self, name)
            self._check(name, count is None or 0 <= count <= LARGEST, "None or at least 0")
        self._check("stop", all(self.stop), "non-empty strings")
        self._check("bad_words", all(self.bad_words), "non-empty texts, or non-empty lists of token ids")
        self._check("allowed_token_ids", self.allowed_token_ids != (), "at least one token id, or None (all tokens)")
        self._check_sizes()
        if len(self.prefix_ids) > most:
            raise RequestError(
                f"forced_prefix has {len(self.prefix_ids)} tokens, more than max_tokens={most}: they count as output"
            )
        biases = self.logit_bias.values()
        limits = f"numbers of at most {_LARGE:g} either way, or -inf for a token that must not come"
        self._check("logit_bias", all(abs(bias) <= _LARGE or bias == -inf for bias in biases), limits)

    def _check_sizes(self) -> None:
        """What work and memory grow with has a limit (`options/limits.py`)."""
        sizes = {
            "stop": (sum(map(len, self.stop)), ALL_STOPS, "characters in all"),
            "bad_words": (sum(map(len, self.bad_words)), ALL_BAD_WORDS, "characters and tokens in all"),
            "forced_prefix": (len(self.forced_prefix), LONGEST_PREFIX, "characters or tokens"),
            "logit_bias": (len(self.logit_bias), MOST_BIASES, "tokens"),
            "stop_token_ids": (len(self.stop_token_ids), MOST_IDS, "tokens"),
            "banned_token_ids": (len(self.banned_token_ids), MOST_IDS, "tokens"),
            "allowed_token_ids": (len(self.allowed_token_ids or ()), MOST_IDS, "tokens"),
        }
        for name, (size, most, of) in sizes.items():
            if size > most:
                raise RequestError(
                    f"{name}={shown(getattr(self, name))} has {size} {of}, and {most} are taken: send less"
                )

    def _check(self, name: str, holds: bool, allowed: str) -> None:
        if not holds:
            raise RequestError(f"{name}={shown(getattr(self, name))} is out of range: it must be {allowed}")

    def singles(self) -> "list[SamplingParams]":
        """The settings of its `n` texts, one each, with seeds of their own if there is one.

        The first alone is asked for the prompt's log probabilities, which are the same for all.
        """
        if self.n == 1:
            return [self]
        return [self._single(i) for i in range(self.n)]

    def _single(self, i: int) -> "SamplingParams":
        one = copy(self)  # what it has was checked, and lists may be long
        object.__setattr__(one, "n", 1)
        object.__setattr__(one, "seed", None if self.seed is None else seed_of_text(self.seed, i))
        if i:
            object.__setattr__(one, "prompt_logprobs", None)
        return one

    @property
    def greedy(self) -> bool:
        """Whether the distribution is one-hot."""
        return self.temperature == 0.0

    @property
    def names_tokens(self) -> bool:
        """Whether a setting names tokens, or forbids some: such settings are checked against the vocabulary."""
        listed = (self.logit_bias, self.stop_token_ids, self.banned_token_ids, self.bad_words, self.forced_prefix)
        return any(listed) or self.allowed_token_ids is not None or self.min_tokens > 0

    @property
    def guides(self) -> bool:
        """Whether the text is written with classifier-free guidance."""
        return self.guidance_scale != 1.0

    @property
    def edits_logits(self) -> bool:
        """Whether logits are changed before the temperature: by penalties, a minimum length, biases or masks.

        `forced_prefix` is left out: it changes logits until it is written, which `Sequence.edits_logits` knows.
        """
        fixed = self.logit_bias or self.banned_token_ids or self.allowed_token_ids is not None
        return self.depends_on_history or bool(fixed)

    @property
    def depends_on_history(self) -> bool:
        """Whether the processed distribution at a node depends on the tokens before it, beyond the model's own view.

        Again without `forced_prefix`.
        """
        return bool(self.penalises or self.min_tokens or self.bad_words)

    @property
    def bad_word_ids(self) -> tuple[tuple[int, ...], ...]:
        """The bad words that are ids; texts become ids where prompts are read (`engine/callers/prompts.py`)."""
        return tuple(word for word in self.bad_words if not isinstance(word, str))

    @property
    def prefix_ids(self) -> tuple[int, ...]:
        """The forced prefix, if it is ids; likewise."""
        return () if isinstance(self.forced_prefix, str) else self.forced_prefix

    @property
    def penalises(self) -> bool:
        """Whether tokens that were written are changed in their logits."""
        return bool(self.repetition_penalty != 1.0 or self.presence_penalty or self.frequency_penalty)


DEFAULTS: dict[str, Any] = {name: one.default for name, one in signature(SamplingParams).parameters.items()}


def seed_of_text(seed: int, i: int) -> int:
    """The seed of text `i` of a request for several texts: the request's own for the first.

    The others are keyed hashes, so that requests with neighbouring seeds have no text in common: the first eight bytes,
    least one first, of BLAKE2b over "outdraft text SEED I", without the lowest bit.
    """
    if i == 0:
        return seed
    return int.from_bytes(blake2b(f"outdraft text {seed} {i}".encode(), digest_size=8).digest(), "little") >> 1
