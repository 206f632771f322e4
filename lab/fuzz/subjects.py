"""The engines of a case: the plain one that says what is right, and the one under test.

Plain engines are loaded once and kept for as long as there is room; what drafts is built anew for every case over the
same weights, so that no case depends on what ran before it. On a tiny model a drafter's own models are made as the rows
of the contract suite say; on the zoo it has its defaults.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, fields, replace
from typing import Any

from lab.fuzz.models import ZOO, Models
from lab.fuzz.plan import VARIANTS, Case
from outdraft import LLM, SamplingParams
from outdraft.core.registry import find
from outdraft.drafters.shared.look_up.datastore.build import build_datastore
from outdraft.options.errors import DecodingError, OutdraftError
from outdraft.testing.spec_table import DrafterRow

KEPT = 64  # plain engines in memory
STREAMED = {True: "14MiB", False: "150KiB"}  # of the zoo, of a tiny model: less than half of the weights
LEVELS = 3  # of elastic precision
DATASTORE = "datastore"  # the option by which a drafter is given one


@dataclass(slots=True, kw_only=True)
class Subject:
    """What is tested, and how it came about. `references`: what every request may copy from."""

    llm: LLM
    drafter: str
    references: tuple[tuple[int, ...], ...] = ()
    refused: dict[str, str] = field(default_factory=dict)  # what does not go together, and why


@dataclass(slots=True, kw_only=True)
class Workshop:
    """Builds engines. `verifier`: the rule in the honest rule's place, where a fault is planted."""

    models: Models
    rows: Seq[DrafterRow]
    verifier: str | None = None
    _plain: "OrderedDict[tuple[str, str, int], LLM]" = field(default_factory=OrderedDict)

    def plain(self, case: Case) -> LLM:
        key = (case.model, case.variant, case.max_num_seqs)
        if key not in self._plain:
            variant = VARIANTS[case.variant]
            words = variant.words if variant.plain is None else variant.plain
            self._plain[key] = LLM(self.models.directory(case.model), drafter="none", **_words(case, words))
            if len(self._plain) > KEPT:
                self._plain.popitem(last=False)
        self._plain.move_to_end(key)
        return self._plain[key]

    def subject(self, case: Case, plain: LLM, answers: Seq[tuple[int, ...]]) -> Subject:
        """With the case's drafter. `answers`: what plain decoding writes, prompts included.

        A policy that the drafter cannot have is replaced by the fixed depth; a way to build the drafter that this
        target refuses, by the next one. Raises `OutdraftError` if there is none.
        """
        refused: dict[str, str] = {}
        error: OutdraftError | None = None
        for row, options, references in self._ways(case, plain, answers):
            for policy in dict.fromkeys((case.policy, None)):
                words: dict[str, Any] = {"policy": policy} if policy else {"num_speculative_tokens": case.depth}
                if self.verifier is not None:
                    words["verifier"] = self.verifier
                try:
                    llm = self._build(case, plain, options, words)
                except DecodingError:  # it broke while it wrote, which is no refusal
                    raise
                except OutdraftError as refusal:
                    error, refused[f"{row}, policy {policy}"] = refusal, str(refusal)
                else:
                    return Subject(llm=llm, drafter=row, references=references, refused=refused)
        raise error or OutdraftError(f"drafter {case.drafter!r} has no row: no row says how it is built")

    def _build(self, case: Case, plain: LLM, options: Mapping[str, Any], words: Mapping[str, Any]) -> LLM:
        own = VARIANTS[case.variant]
        if own.plain is None:
            return _in_memory_of(case, plain).with_drafter({"name": case.drafter, **options}, **words)
        given = _words(case, {**own.words, **words})
        llm = LLM(self.models.directory(case.model), drafter={"name": case.drafter, **options}, **given)
        for _ in range(LEVELS):  # elastic precision takes one step down, if any, with every request
            llm.generate({"prompt_token_ids": [1]}, SamplingParams(max_tokens=1))
        return llm

    def _ways(
        self, case: Case, plain: LLM, answers: Seq[tuple[int, ...]]
    ) -> Iterator[tuple[str, Mapping[str, Any], tuple[tuple[int, ...], ...]]]:
        """(name, options, references) of each way to build the drafter, the case's own choice first."""
        documents = self._documents(case, answers)
        store: dict[str, Any] = {}
        options_type = find("drafter", case.drafter).options
        if DATASTORE in {one.name for one in fields(options_type)}:
            path = self.models.folder / DATASTORE
            assert plain.tokenizer is not None  # every model of `models` has one
            build_datastore(path, [list(text) for text in documents], plain.tokenizer)
            store = {DATASTORE: str(path)}
        if case.model.startswith(ZOO):
            yield case.drafter, store, documents if case.shows_answers else ()
            return
        rows = [row for row in self.rows if row.drafter == case.drafter]
        rows = rows[case.row % len(rows) :] + rows[: case.row % len(rows)] if rows else []
        base = case.model.partition("@")[0]
        for row in rows:
            options = {**self.models.side(base, row), **row.options, **store}
            yield row.name, options, documents if case.shows_answers else ()

    def _documents(self, case: Case, answers: Seq[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
        """What look-ups read: the answers themselves, or other text of the same prompts."""
        if case.shows_answers:
            return tuple(answers)
        return tuple(tuple(reversed(ask.prompt)) + ask.prompt for ask in case.asks)


def _words(case: Case, words: Mapping[str, Any]) -> dict[str, Any]:
    """`words` for `LLM`, with what depends on the case."""
    streamed = {"weights_memory": STREAMED[case.model == ZOO]} if case.variant == "streamed" else {}
    return {**words, **streamed, "max_num_seqs": case.max_num_seqs}


def _in_memory_of(case: Case, plain: LLM) -> LLM:
    """The same weights; engines beside them get the case's pages of memory."""
    if case.pages is None:
        return plain
    twin: LLM = object.__new__(LLM)
    vars(twin).update(vars(plain))
    cache = replace(plain._setup.cache, layout="paged", num_pages=case.pages, prefixes=case.prefixes)
    twin._setup = replace(plain._setup, cache=cache)
    return twin
