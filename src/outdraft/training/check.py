"""Check a trained draft in the engine: is its acceptance what its trainer promised?

    promise   made when training ends, with the network in memory, and stored (`promise.py`)
    measure   what was saved is loaded into an engine, which drafts chains of that length after the same prompts

More than 2 % and three standard errors apart, something was lost on the way: other taps, another norm, another
template. Near enough over fewer rounds than 5,000 says nothing: so little would not show what was lost.
Greedy, both are about the same texts; sampled, about as many others. So a sampled check of a few thousand rounds has a
standard error of about 1 %, and two of them would call one sound draft in twenty broken; three call one in 400. Few
texts know their standard error badly: there it takes more of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import hypot
from pathlib import Path
from typing import Any, Literal

from outdraft.adapt.kinds import Finding
from outdraft.adapt.specimen import compare
from outdraft.core.learner_registry import find_learner
from outdraft.core.registry import find
from outdraft.engine.llm import LLM
from outdraft.models.files.load import load_model
from outdraft.models.files.load_codec import load_codec
from outdraft.options.base import RoundedOptions
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path
from outdraft.training.computing import open_target
from outdraft.training.lessons import Teacher
from outdraft.training.possible import require_own_target
from outdraft.training.promise import LEAST_ROUNDS, written
from outdraft.training.record import Promise, PromiseTerms, fingerprint, read_record, require_target, template_digest
from outdraft.training.specimens import take_specimen
from outdraft.training.walk import Walk
from outdraft.weights.hub import resolve

APART = 0.02  # of what was promised
ERRORS = 3.0  # standard errors of the difference


def errors_of(texts: int) -> float:
    """So many standard errors of so few texts leave as much outside as `ERRORS` of many do: Student's distribution."""
    z, few = ERRORS, max(1, texts - 1)
    return z + (z**3 + z) / (4 * few) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * few**2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A promise, and what came of it."""

    promise: Promise
    measured: Walk

    @property
    def outcome(self) -> Literal["holds", "broken", "too few rounds"]:
        """Whether they are near enough, where there are rounds enough to say so."""
        far, promised = abs(self.measured.tau - self.promise.tau), self.promise
        chance = errors_of(len(self.measured.rounds)) * hypot(self.measured.standard_error, promised.standard_error)
        if far > APART * promised.tau and far > chance:
            return "broken"
        return "holds" if sum(self.measured.rounds) >= LEAST_ROUNDS else "too few rounds"

    @property
    def holds(self) -> bool | None:
        """None: too few rounds to say."""
        return None if self.outcome == "too few rounds" else self.outcome == "holds"

    @property
    def line(self) -> str:
        """What came of it, for people to read."""
        seen, said, rounds = self.measured, self.promise, sum(self.measured.rounds)
        how = "greedy" if not said.terms.temperature else f"temperature {said.terms.temperature:g}"
        errors = f"standard errors {said.standard_error:.3f}, {seen.standard_error:.3f}"
        cure = ": hold out more examples" if said.exhausted else ""
        few = "" if rounds >= LEAST_ROUNDS else f"; a check wants {LEAST_ROUNDS}{cure}"
        said_so = {"holds": "holds", "broken": "BROKEN", "too few rounds": "cannot say"}[self.outcome]
        return (
            f"{said_so}  {how}: promised {said.tau:.3f} tokens a pass, measured "
            f"{seen.tau:.3f} ({errors}; {rounds:.0f} rounds{few})"
        )

    def told(self) -> dict[str, Any]:
        """All numbers, as plain data for JSON."""
        return {
            "outcome": self.outcome,
            "holds": self.holds,
            "temperature": self.promise.terms.temperature,
            "promised": self.promise.tau,
            "promised_error": self.promise.standard_error,
            "measured": self.measured.tau,
            "measured_error": self.measured.standard_error,
            "rounds": sum(self.measured.rounds),
            "promised_conditional": list(self.promise.conditional),
            "measured_conditional": self.measured.conditional,
        }


def check_directory(
    directory: Path, target: str, *, dtype: str | None = None, device: str | None = None
) -> list[Checked]:
    """Every promise of a trained draft. Raises `ConfigError` where there is none, or for another target's draft.

    `dtype`: of the target; by default the one that it was trained under.
    """
    name = str(directory)
    place, source = resolve(name) if name.startswith("zoo:") else user_path(name), resolve(target)
    record = read_record(place)
    if not record.promises:
        raise ConfigError(
            f"{directory} was saved before its acceptance was measured, so there is nothing to check: train it to "
            "the end"
        )
    method = find_learner(record.kind)
    dtype = dtype or record.dtype
    require_target(record, directory, target, fingerprint(load_model(source, dtype)))
    if record.chat_template is not None and record.chat_template != template_digest(load_codec(source)):
        raise ConfigError(
            f"{directory} learned from chats of another template than that of {target}: put the template back "
            "(tokenizer_config.json, chat_template.jinja), or train again"
        )
    drafter = method.drafter or record.kind
    options = {**method.drafter_options(place), **as_saved(drafter), **method.drafts}
    return [
        Checked(promise=one, measured=measure(drafter, options, source, one.terms, dtype=dtype, device=device or "cpu"))
        for one in record.promises
    ]


def compare_specimen(directory: Path, target: str, *, dtype: str | None = None, device: str = "cpu") -> list[Finding]:
    """What one pass over the record's specimen shows of a pair: nothing where the record holds none, in seconds."""
    name = str(directory)
    place = resolve(name) if name.startswith("zoo:") else user_path(name)
    record = read_record(place)
    if record.specimen is None:
        return []
    method = find_learner(record.kind)
    source = resolve(target)
    decoder, _ = open_target(source, dtype or "auto", device)
    require_own_target(place, decoder, source)
    learner = method.load(method.options(), decoder, place)
    return compare(record.specimen, take_specimen(learner, Teacher(decoder, learner.taps), place, record.specimen.ids))


def as_saved(drafter: str) -> dict[str, Any]:
    """The drafter's options by which its weights are not rounded: a promise is of those that were trained."""
    rounds = issubclass(find("drafter", drafter).options, RoundedOptions)
    return {"quantization": "none"} if rounds else {}


def measure(
    drafter: str,
    options: Mapping[str, Any],
    target: Path,
    terms: PromiseTerms,
    *,
    dtype: str = "auto",
    device: str = "cpu",
) -> Walk:
    """What the engine does, in chains of the promised length judged by rejection sampling."""
    engine = LLM(
        target,
        drafter={"name": drafter, **options},
        verifier="rejection",
        policy="fixed",
        dtype=dtype,
        device=device,
        num_speculative_tokens=terms.depth,
    )
    tokens, rounds = [], []
    reached, kept = [0.0] * terms.depth, [0.0] * terms.depth
    for one in written(engine, terms, None):
        stats = one.stats
        tokens.append(stats.num_tokens - 1.0)  # the pass that reads the prompt writes one, without a draft
        rounds.append(stats.num_steps - 1.0)
        for d in range(terms.depth):
            reached[d] += stats.reached[d + 1]
            kept[d] += stats.reached[d + 1] - stats.first_rejection[d + 1]
    return Walk(tokens=tuple(tokens), rounds=tuple(rounds), reached=tuple(reached), kept=tuple(kept))
