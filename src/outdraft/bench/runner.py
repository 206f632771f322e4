"""The whole run: prompt after prompt, every method on it in interleaved rounds, a line for each as soon as it is done.

A conversation's later turns follow plain decoding's answers, which are every method's answers. Methods whose line is
there already are left out; plain decoding runs with those that remain, because a speed-up is a ratio within a round.
Data in: a `BenchPlan` and a `RecordFile`; data out: lines in the journal, and an `BenchOutcome`.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from outdraft.bench.clock import time_text
from outdraft.bench.curve import PAST, measure_curve
from outdraft.bench.entrant import Entrant
from outdraft.bench.fingerprint import digest
from outdraft.bench.machine import describe, load_average
from outdraft.bench.neighbours import busy_neighbours
from outdraft.bench.row import make_row
from outdraft.bench.subject import BenchTarget
from outdraft.bench.suites import Prompt
from outdraft.bench.suites.prompt import AskedPrompt, ask
from outdraft.bench.trial import PLAIN, begin, time_round
from outdraft.bench.write import RecordFile, as_record
from outdraft.options.params import SamplingParams

WARM_UP_TOKENS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """What to measure. `entrants` holds plain decoding, as "none", and every method by its label."""

    subject: BenchTarget
    entrants: Mapping[str, Entrant]
    prompts: Seq[Prompt]
    params: SamplingParams
    rounds: int
    curve: bool = True
    past: int = PAST  # cached tokens of the curve
    neighbours: int = 0  # programs of ours that keep a core busy each, all the time

    @property
    def one_length(self) -> bool:
        """Whether every text must be `max_tokens` long: other programs know none of our stop strings."""
        return any(entrant.foreign for entrant in self.entrants.values())

    @property
    def num_texts(self) -> int:
        """Texts to write at most: the unit of progress."""
        return sum(len(prompt.turns) for prompt in self.prompts) * len(self.entrants) * (self.rounds + 1)


@dataclass(slots=True, kw_only=True)
class BenchOutcome:
    """What a run came to. `too_long`: prompts that the context does not hold; `failed`: rows of another text."""

    num_rows: int = 0
    num_skipped: int = 0
    too_long: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    key: str | None = None  # of one of its rows, new or old


class Bench:
    """One run. `tell(message, n)` hears what goes on, and how many texts are done with."""

    def __init__(
        self, plan: BenchPlan, journal: RecordFile, tell: Callable[[str, int], None] = lambda message, n: None
    ) -> None:
        self.plan, self.journal, self.tell = plan, journal, tell
        self.machine = describe(str(plan.subject.plain.config["device"]))
        self.machine |= {"neighbours": plan.neighbours} if plan.neighbours else {}
        self.outcome = BenchOutcome()
        self._warm: set[str] = set()
        self._configs = {label: entrant.config for label, entrant in plan.entrants.items()}

    def run(self) -> BenchOutcome:
        """Everything that is not there yet."""
        with busy_neighbours(self.plan.neighbours):
            for prompt in self.plan.prompts:
                self._run_prompt(prompt)
            if self.plan.curve:
                self._run_curve()
        return self.outcome

    def _run_prompt(self, prompt: Prompt) -> None:
        codec = self.plan.subject.plain.tokenizer
        assert codec is not None
        messages: list[dict[str, str]] = []
        for number, turn in enumerate(prompt.turns, 1):
            messages.append({"role": "user", "content": turn})
            name = prompt.name if len(prompt.turns) == 1 else f"{prompt.name}/{number}"
            asked = ask(codec, prompt, messages)
            stop = () if self.plan.one_length else (*self.plan.params.stop, *asked.stop)
            params = replace(self.plan.params, stop=stop)
            if len(asked.ids) + (params.max_tokens or 1) > self.plan.subject.plain.config["max_model_len"]:
                self.outcome.too_long.append(f"{prompt.suite} {name}")
                self.tell("", (len(prompt.turns) - number + 1) * len(self.plan.entrants) * (self.plan.rounds + 1))
                return
            answer = self._run_turn(prompt, name, asked, params)
            if number < len(prompt.turns):
                text = answer if answer is not None else self._answer(asked, params)
                messages.append({"role": "assistant", "content": text.strip()})

    def _run_turn(self, prompt: Prompt, name: str, asked: AskedPrompt, params: SamplingParams) -> str | None:
        """Measure what is missing; plain decoding's text, if it was written."""
        keys = {label: self._key(label, prompt, name, asked, params) for label in self.plan.entrants}
        self.outcome.key = keys[PLAIN]
        missing = [label for label in self.plan.entrants if keys[label] not in self.journal.keys]
        done = len(self.plan.entrants) - len(missing)
        self.outcome.num_skipped += done
        entrants = {label: self.plan.entrants[label] for label in dict.fromkeys([PLAIN, *missing])}
        spared = len(self.plan.entrants) - (len(entrants) if missing else 0)
        self.tell("", spared * (self.plan.rounds + 1))
        if not missing:
            return None
        self._warm_up(entrants, asked)
        where = f"{prompt.suite} {name}"
        trials = begin(
            entrants, asked.ids, params, lambda label: self.tell(f"{where}: {label}", 1), references=asked.references
        )
        for number in range(self.plan.rounds):
            time_round(
                trials,
                entrants,
                asked.ids,
                params,
                number=number,
                tell=lambda label: self.tell(f"{where}: {label}", 1),
                references=asked.references,
            )
        for label in missing:
            row = make_row(
                trials[label],
                trials[PLAIN],
                suite=prompt.suite,
                category=prompt.category,
                prompt=name,
                method=label,
                num_prompt_tokens=len(asked.ids),
            )
            common = self._common() | {"config": self._configs[label], "sampling": asdict(params)}
            self.journal.append(as_record("row", row, key=keys[label], **common))
            self.outcome.num_rows += 1
            if row.identical is False:
                self.outcome.failed.append(f"{label} on {where}: {row.difference}")
        return trials[PLAIN].first.text

    def _run_curve(self) -> None:
        key = digest({"curve": self._common(), "past": self.plan.past, "config": self._configs[PLAIN]})
        if key in self.journal.keys:
            return
        self.tell("what a pass costs by its rows", 0)
        curve = asdict(measure_curve(self.plan.subject.plain, past=self.plan.past))
        more = {"config": self._configs[PLAIN], "load": load_average()}
        self.journal.append({"kind": "curve", "key": key, **curve, **more, **self._common()})

    def _warm_up(self, entrants: Mapping[str, Entrant], asked: AskedPrompt) -> None:
        """The first passes of an engine pay for things that are done once."""
        for label, entrant in entrants.items():
            if label not in self._warm:
                self.tell(f"warming up: {label}", 0)
                entrant.time_text(asked.ids, SamplingParams(max_tokens=WARM_UP_TOKENS, ignore_eos=True))
                self._warm.add(label)

    def _answer(self, asked: AskedPrompt, params: SamplingParams) -> str:
        return time_text(self.plan.subject.plain, asked.ids, params).text

    def _common(self) -> dict[str, Any]:
        return {"model": self.plan.subject.told, "machine": self.machine}

    def _key(self, label: str, prompt: Prompt, name: str, asked: AskedPrompt, params: SamplingParams) -> str:
        return digest(
            {
                **self._common(),
                "config": self._configs[label],
                "sampling": asdict(params),
                "rounds": self.plan.rounds,
                "ids": asked.ids,
                "what": [prompt.suite, prompt.category, name, label],
                **({"references": asked.references} if asked.references else {}),
            }
        )
