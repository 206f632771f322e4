"""The proof that a user can run: is the speculative output the target's own, for this model and these settings?

    greedy identity       plain and speculative write the same tokens, prompt by prompt
    seeded identity       the same for sampled requests that name a seed, where the rule couples
    sampled distribution  many texts from the same prompts, plain and speculative: two-sample test of stated power
    power                 how many texts the next test needs to catch a lossy rule in the honest one's place
    token distribution    tokens of so many long texts against what a plain pass recomputes, and whether they lean to
                          what was guessed: one-sample tests

Plain and speculative run in batches of different sizes, so that identity is also independence of the batch. What is
tested is the whole engine through its public interface, not a part of it. Data in: two `LLM`s; data out: `Check`s.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from time import perf_counter, process_time
from typing import Any

from outdraft.core.request import Request
from outdraft.engine.callers.result import Result, all_whole
from outdraft.engine.llm import LLM
from outdraft.options.params import SamplingParams
from outdraft.testing.lean import Lean, Watch
from outdraft.testing.statistics import TwoSample, detectable_shift, two_sample
from outdraft.testing.token_distribution import TokenDistribution, judge_tokens

PLANTED = "outdraft.testing.planted:METHOD"
FAULTS = {"keep what is likely": PLANTED, "keep everything": "outdraft.testing.accept_all:METHOD"}  # subtle to crude
PLAIN_BATCH, SPECULATIVE_BATCH = 7, 16
POWER = 0.95
MIN_TOKENS, MAX_EFFORT, MARGIN = 60, 8, 10.0
TRIAL = 8  # texts of the pace, and tokens of each


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was proven, was found wrong, or is undecided (`conclusive` is False, and it did not pass)."""

    name: str
    passed: bool
    detail: str
    conclusive: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A way to sample, with a name for the report."""

    name: str
    sampling: Mapping[str, Any]

    @property
    def greedy(self) -> bool:
        """Whether there is nothing to sample."""
        return not self.sampling.get("temperature", 0.0)


SETTINGS = (
    Setting(name="greedy", sampling={"temperature": 0.0}),
    Setting(name="T=0.8", sampling={"temperature": 0.8}),
    Setting(name="top-p 0.9", sampling={"temperature": 1.0, "top_p": 0.9}),
    Setting(name="min-p 0.05", sampling={"temperature": 1.0, "min_p": 0.05}),
    Setting(
        name="penalties",
        sampling={"temperature": 0.8, "repetition_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": 0.2},
    ),
    Setting(
        name="masks",
        sampling={"temperature": 1.0, "typical_p": 0.95, "banned_token_ids": (1, 2), "bad_words": ((3,), (5, 6))},
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds a token: written plainly, written with guesses, recomputed."""

    plain: float
    drafted: float
    judged: float
    share: float  # of the time in which this process had a core: the rest is other programs' doing


@dataclass(slots=True, kw_only=True)
class Auditor:
    """Runs checks against one plain engine, whose texts and samples are made once for all drafters.

    alpha: chance of one false alarm in the whole audit; `num_distributions` checks of distributions share it.
    """

    plain: LLM
    prompts: list[list[int]]
    distribution_prompts: list[list[int]]
    negative: tuple[int, ...] | None = None  # the negative prompt of settings with guidance
    max_tokens: int = 128
    samples: int = 1000  # texts for each distribution prompt and side
    distribution_tokens: int = 6  # tokens of each such text
    alpha: float = 1e-3
    num_distributions: int = 1
    recomputed: int | None = None  # of the long texts, how many are recomputed by a plain pass; None: all
    _texts: dict[tuple[str, bool], list[Result]] = field(default_factory=dict)
    _samples: dict[str, list[list[Result]]] = field(default_factory=dict)

    def identity(self, spec: LLM, setting: Setting) -> Check:
        """Same tokens, prompt by prompt; a sampled setting gets a seed for each prompt."""
        seeded = not setting.greedy
        kind = "seeded" if seeded else "greedy"
        params = self._identity_params(setting)
        name = f"{kind} identity"
        if seeded and not spec.engine.parts.verifier.couples(Request(prompt_token_ids=(0,), params=params[0])):
            detail = "not promised: this rule does not couple to the seed; see the distribution"
            return Check(name=name, passed=True, detail=detail)
        key = (setting.name, seeded)
        if key not in self._texts:
            self._texts[key] = self._in_batches(self.plain, self.prompts, params, PLAIN_BATCH)
        ours = self._in_batches(spec, self.prompts, params, SPECULATIVE_BATCH)
        drafted = sum(result.stats.num_draft_tokens for result in ours)
        accepted = sum(result.stats.num_accepted_tokens for result in ours)
        for i, (theirs, mine) in enumerate(zip(self._texts[key], ours, strict=True)):
            if (theirs.token_ids, theirs.finish_reason, theirs.text) != (mine.token_ids, mine.finish_reason, mine.text):
                return Check(name=name, passed=False, detail=f"prompt {i}: {self._difference(theirs, mine)}")
        size = f"{len(ours)} prompts x {self.max_tokens} tokens"
        if not drafted:
            detail = f"{size} are identical, but nothing was drafted: no proof"
            return Check(name=name, passed=False, detail=detail, conclusive=False)
        return Check(name=name, passed=True, detail=f"{size}: identical; {accepted} of {drafted} drafted were accepted")

    def distribution(self, spec: LLM, setting: Setting) -> Check:
        """Whether plain and speculative texts can come from one distribution."""
        theirs, ours = self._plain_samples(setting), self._sample(spec, setting)
        drafted = sum(result.stats.num_draft_tokens for results in ours for result in results)
        tables = [
            two_sample(_pairs(theirs[prompt], position), _pairs(ours[prompt], position))
            for prompt in range(len(ours))
            for position in range(self.distribution_tokens - 1)
        ]
        tables = [table for table in tables if table.degrees > 0]
        size = f"{self.samples} texts of {self.distribution_tokens} tokens from each of {len(ours)} prompts, twice"
        if not drafted or not tables:
            reason = "nothing was drafted" if not drafted else "every text is the same"
            detail = f"{size}: {reason}, so this shows nothing"
            return Check(name="sampled distribution", passed=False, detail=detail, conclusive=False)
        p_value = min(1.0, min(table.p_value for table in tables) * len(tables))
        shift = self.smallest_shift(tables)
        verdict = "no difference" if p_value >= self.level else "they DIFFER"
        detail = (
            f"{size}; {len(tables)} tables of token pairs: {verdict}, p = {p_value:.2g} (level {self.level:.1g}); "
            f"a shift of total variation {shift:.2f} in any table would be found with probability {POWER}; "
            f"{drafted} tokens were drafted"
        )
        return Check(name="sampled distribution", passed=p_value >= self.level, detail=detail)

    def tokens(self, spec: LLM, setting: Setting, *, effort: int = 1) -> Check:
        """Whether the tokens of `effort` times as many long unseeded texts were drawn from their distributions."""
        found, lean, p_value = self._judge_tokens(spec, setting, effort)
        size = f"{effort * len(self.prompts)} texts of {self.max_tokens} tokens, {lean.num_rounds} rounds with a guess"
        if lean.num_rounds < MIN_TOKENS:
            detail = f"{size}: too few to judge (at least {MIN_TOKENS}): take more prompts or tokens"
            return Check(name="token distribution", passed=False, detail=detail, conclusive=False)
        shifts = (one.smallest_shift(alpha=self.level / 2, power=POWER) for one in (lean, found))
        passed = p_value >= self.level
        forbidden = f", {found.forbidden} impossible tokens" if found.forbidden else ""
        told = "fit {}, and do not lean to the guesses" if passed else "do NOT fit {}, or LEAN to the guesses"
        some = "" if self.recomputed is None else f" (of {min(self.recomputed, effort * len(self.prompts))} texts)"
        told = told.format(f"the distributions that a plain pass recomputes{some}")
        detail = (
            f"{size}{forbidden}: the tokens {told}, p = {p_value:.2g} (level {self.level:.1g}); this notices with "
            "probability {} an average total variation of {:.3f} to the guesses, of {:.2f} elsewhere".format(
                POWER, *shifts
            )
        )
        return Check(name="token distribution", passed=passed, detail=detail)

    def pace(self, spec: LLM, setting: Setting) -> Pace:
        """Of a few short texts, after one that warms up."""
        prompts = self.prompts[:TRIAL]
        params = SamplingParams(**{**setting.sampling, "max_tokens": TRIAL, "ignore_eos": True})
        begun, worked, paces, results = perf_counter(), process_time(), list[float](), list[Result]()
        for llm in (self.plain, spec):
            self._in_batches(llm, prompts[:1], [params], 1)
            began = perf_counter()
            results = self._in_batches(llm, prompts, [params] * len(prompts), TRIAL)
            paces.append((perf_counter() - began) / (TRIAL * len(prompts)))
        began = perf_counter()
        judge_tokens(self.plain, results[:1], params, negative=self.negative)
        until = perf_counter()
        share = (process_time() - worked) / (until - begun) if str(self.plain.config["device"]) == "cpu" else 1.0
        return Pace(plain=paces[0], drafted=paces[1], judged=(until - began) / TRIAL, share=min(1.0, share))

    def seconds(self, pace: Pace, setting: Setting, *, quick: bool = False) -> float:
        """About how long the checks of a setting take. `quick`: without samples and power, at effort 1."""
        texts, pair = len(self.prompts) * self.max_tokens, pace.plain + pace.drafted
        samples = len(self.distribution_prompts) * self.samples * self.distribution_tokens
        if setting.greedy:
            return texts * pair
        if quick:
            recomputed = min(self.recomputed or len(self.prompts), len(self.prompts)) * self.max_tokens
            return texts * (pair + pace.drafted) + recomputed * pace.judged
        return texts * pair + samples * pair + 3 * texts * (pace.drafted + pace.judged)  # caught at effort 1, as usual

    def power(self, faults: Mapping[str, LLM], setting: Setting) -> tuple[Check, int]:
        """How much effort it takes until a rule that is lossy on purpose is rejected by a wide margin.

        faults: from subtle to crude; a crude one is tried only where a subtle one changes too little to be seen.
        """
        missed = ""
        for fault, lossy in faults.items():
            effort = 1
            while effort <= MAX_EFFORT:
                p_value = self._judge_tokens(lossy, setting, effort)[2]
                size = f"{effort * len(self.prompts)} texts"
                if p_value < self.level / MARGIN:
                    detail = f"planted in the rule's place, {fault!r} is caught: {size}, p = {p_value:.1g}{missed}"
                    # Caught early is also luck: the effort for the real rule has a margin.
                    return Check(name="power", passed=True, detail=detail), MAX_EFFORT if missed else min(
                        MAX_EFFORT, 2 * effort
                    )
                effort *= 2
            missed += f"; {fault!r} changes so little here that {size} do not show it (p = {p_value:.2g})"
        detail = f"no planted fault is caught{missed}: take more prompts and tokens"
        return Check(name="power", passed=False, detail=detail, conclusive=False), MAX_EFFORT

    def _judge_tokens(self, spec: LLM, setting: Setting, effort: int) -> tuple[TokenDistribution, Lean, float]:
        """The tokens against what is recomputed, their leaning to the guesses, and the p-value of both together."""
        params = SamplingParams(**{**setting.sampling, "max_tokens": self.max_tokens})
        prompts, parts = self.prompts * effort, spec.engine.parts
        watch = Watch(parts.verifier)
        spec.engine.parts = replace(parts, verifier=watch)
        try:
            results = self._in_batches(spec, prompts, [params] * len(prompts), SPECULATIVE_BATCH)
        finally:
            spec.engine.parts = parts
        found = judge_tokens(self.plain, results[: self.recomputed], params, negative=self.negative)
        return found, watch.lean, min(1.0, 2 * found.p_value, 2 * watch.lean.p_value)

    @property
    def level(self) -> float:
        return self.alpha / self.num_distributions

    def smallest_shift(self, tables: Seq[TwoSample]) -> float:
        """What the weakest of the tables still finds."""
        level = self.level / len(tables)
        return max(detectable_shift(t.sizes, t.degrees, alpha=level, power=POWER) for t in tables)

    def _identity_params(self, setting: Setting) -> list[SamplingParams]:
        given = dict(setting.sampling, max_tokens=self.max_tokens)
        if setting.greedy:
            return [SamplingParams(**given)] * len(self.prompts)
        return [SamplingParams(**given, seed=1000 + i) for i in range(len(self.prompts))]

    def _plain_samples(self, setting: Setting) -> list[list[Result]]:
        if setting.name not in self._samples:
            self._samples[setting.name] = self._sample(self.plain, setting)
        return self._samples[setting.name]

    def _sample(self, llm: LLM, setting: Setting) -> list[list[Result]]:
        """[prompt][i]: unseeded texts, so that the rule of highest acceptance is the one that is tested."""
        params = SamplingParams(**{**setting.sampling, "max_tokens": self.distribution_tokens})
        prompts = [[self._asked(ids)] * self.samples for ids in self.distribution_prompts]
        return [all_whole(llm.generate(same, params, use_tqdm=False)) for same in prompts]

    def _in_batches(self, llm: LLM, prompts: Seq[list[int]], params: Seq[SamplingParams], size: int) -> list[Result]:
        results: list[Result] = []
        for start in range(0, len(prompts), size):
            part = slice(start, start + size)
            results += all_whole(
                llm.generate([self._asked(ids) for ids in prompts[part]], params[part], use_tqdm=False)
            )
        return results

    def _asked(self, ids: list[int]) -> dict[str, Any]:
        return {"prompt_token_ids": ids, "negative_prompt": self.negative}

    def _difference(self, theirs: Result, mine: Result) -> str:
        at = next(
            (i for i, (a, b) in enumerate(zip(theirs.token_ids, mine.token_ids, strict=False)) if a != b),
            min(len(theirs.token_ids), len(mine.token_ids)),
        )
        return f"token {at} is {self._show(theirs, at)} in plain decoding and {self._show(mine, at)} under speculation"

    def _show(self, result: Result, at: int) -> str:
        if at >= len(result.token_ids):
            return f"the end ({result.finish_reason})"
        token, codec = result.token_ids[at], self.plain.tokenizer
        return str(token) if codec is None else repr(codec.token_text(token))


def _pairs(results: Seq[Result], position: int) -> list[tuple[int, ...]]:
    """Tokens `position` and `position + 1` of each text; shorter if the text ended before."""
    return [result.token_ids[position : position + 2] for result in results]
