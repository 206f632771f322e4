"""Run cases: plain texts, the same through the engine under test, the same by `transformers`.

Data in: a case; data out: a `Record`, which is one line of the journal.
"""

import signal
from collections import OrderedDict
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import process_time
from types import FrameType
from typing import Any, NoReturn

from lab.fuzz import drive
from lab.fuzz.asks import Ask
from lab.fuzz.drive import Text
from lab.fuzz.oracle import Oracle, plain_greedy
from lab.fuzz.plan import PLAIN, Case
from lab.fuzz.subjects import Workshop
from lab.sweep.survived import Survived
from outdraft import LLM
from outdraft.options.errors import OutdraftError
from outdraft.testing.in_slices import in_slices

SECONDS = 600  # for one case; longer is a hang
ORACLES_KEPT = 12
GENERATE_EVERY = 8  # every so many cases `generate` is asked beside the forward pass


@dataclass(slots=True, kw_only=True)
class Record:
    """What came of one case."""

    case: int
    kind: str
    model: str
    variant: str
    drafter: str
    way: str = ""  # the row by which the drafter was built
    shape: str = ""
    texts: int = 0
    tokens: int = 0
    accepted: int = 0
    ties: int = 0
    cpu: float = 0.0  # seconds of this process
    refused: dict[str, str] = field(default_factory=dict)
    hung: bool = False  # threads of it may still be at work
    difference: dict[str, Any] | None = None


class HangError(Exception):
    """A case did not end within its time."""


@dataclass(slots=True)
class Runner:
    """Runs cases one after the other in this process."""

    workshop: Workshop
    _oracles: "OrderedDict[str, Oracle]" = field(default_factory=OrderedDict)

    def run(self, case: Case) -> Record:
        """Every fault becomes the record's `difference`; a drafter that this target refuses leaves no texts."""
        record = Record(
            case=case.number,
            kind=case.kind,
            model=case.model,
            variant=case.variant,
            drafter=case.drafter,
            shape=case.shape,
        )
        began = process_time()
        try:
            with _time_limit(SECONDS), in_slices(case.slices), Survived() as survived:
                self._run(case, record)
            if survived.broke and record.difference is None:
                record.difference = {"what": f"survived: {survived.broke[0]!r}", "where": survived.where}
        except HangError as error:
            record.hung, record.difference = True, {"what": str(error)}
        except Exception as error:  # whatever it is, it is what was looked for
            record.difference = {"what": f"{type(error).__name__}: {error}"}
        record.cpu = round(process_time() - began, 3)
        return record

    def _run(self, case: Case, record: Record) -> None:
        plain = self.workshop.plain(case)
        # Where transformers is asked as well, plain decoding need not be alone to be believed.
        wanted = drive.run(plain, "alone" if case.kind == PLAIN else "batch", [*case.asks, *case.leavers])
        answers = [(*ask.prompt, *text.token_ids) for ask, text in zip(case.asks, wanted, strict=False)]
        try:
            subject = self.workshop.subject(case, plain, answers)
        except OutdraftError as error:
            record.refused["every way"] = str(error)
            return
        record.way, record.refused = subject.drafter, subject.refused
        record.texts, record.tokens = len(case.asks), sum(len(text.token_ids) for text in wanted[: len(case.asks)])
        for turn in range(1 + case.again):
            found = drive.run(
                subject.llm,
                case.shape,
                case.asks,
                case.leavers,
                references=subject.references,
                speculative=self._words(case, subject.llm),
            )
            record.accepted += sum(text.num_accepted for text in found)
            if (difference := _compare(case, wanted, found)) is not None:
                record.difference = {**difference, "turn": turn}
                return
        if case.kind != PLAIN:
            self._ask_transformers(case, plain, wanted[: len(case.asks)], record)

    def _words(self, case: Case, llm: LLM) -> dict[str, Any] | None:
        """What every request of the case says of speculation; a planted rule stays in its place."""
        methods = llm.engine.parts.held.methods
        if case.own is None or not methods:
            return None
        words = dict(case.own)
        verifier = words.pop("verifier") if self.workshop.verifier is None else None
        return {"method": methods[words.pop("arm") % len(methods)], **words, "verifier": verifier}

    def _ask_transformers(self, case: Case, plain: LLM, texts: Seq[Text], record: Record) -> None:
        oracle = self._oracle(case)
        for ask, text in zip(case.asks, texts, strict=True):
            fault, ties = oracle.fault(ask, text)
            record.ties += ties
            if fault is None and case.number % GENERATE_EVERY == 0 and not ties and plain_greedy(ask):
                answer = oracle.generate(ask)
                fault = None if answer == list(text.token_ids) else f"`generate` of transformers writes {answer}"
            if fault is not None:
                record.difference = _tell(case, ask, fault, text)
                return

    def _oracle(self, case: Case) -> Oracle:
        if case.model not in self._oracles:
            self._oracles[case.model] = Oracle(self.workshop.models.directory(case.model))
            if len(self._oracles) > ORACLES_KEPT:
                self._oracles.popitem(last=False)
        return self._oracles[case.model]


def _compare(case: Case, wanted: Seq[Text], found: Seq[Text]) -> dict[str, Any] | None:
    """The first text that is another one; of a neighbour that left, what it saw must be the beginning of its text."""
    for i, (right, ours) in enumerate(zip(wanted, found, strict=True)):
        asks = (*case.asks, *case.leavers)
        if ours.whole and (fault := _fault(asks[i], right, ours)) is not None:
            return _tell(case, asks[i], fault, ours, right)
        if not ours.whole and right.token_ids[: len(ours.token_ids)] != ours.token_ids:
            return _tell(case, asks[i], "a cancelled neighbour's text had begun otherwise", ours, right)
        if not ours.whole and not right.text.startswith(ours.text):
            return _tell(case, asks[i], "a cancelled neighbour's characters had begun otherwise", ours, right)
        if i < len(case.asks) and not ours.whole:
            return _tell(case, asks[i], "it was never finished", ours, right)
    return None


def _fault(ask: Ask, right: Text, ours: Text) -> str | None:
    for name in ("token_ids", "finish_reason", "text"):
        if getattr(right, name) != getattr(ours, name):
            return f"{name} differ"
    if "logprobs" in ask.settings and tuple(right.logprobs or ()) != tuple(ours.logprobs or ()):
        return "logprobs differ"
    return None


def _tell(case: Case, ask: Ask, what: str, ours: Text, right: Text | None = None) -> dict[str, Any]:
    told = {
        "what": what,
        "ask": ask.tell(),
        "ours": list(ours.token_ids),
        "text": ours.text,
        "reason": ours.finish_reason,
        "depth": case.depth,
        "policy": case.policy,
        "own": case.own and dict(case.own),
    }
    if right is not None:
        told |= {"plain": list(right.token_ids), "plain_text": right.text, "plain_reason": right.finish_reason}
    return told


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise `HangError` in the main thread where the block takes longer."""

    def ring(number: int, frame: FrameType | None) -> NoReturn:
        raise HangError(f"no end within {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
