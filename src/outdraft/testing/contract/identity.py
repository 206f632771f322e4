"""The same ids as plain decoding: at every draft length, greedy or seeded, alone or among others who come and go."""

from collections.abc import Sequence as Seq
from dataclasses import replace

from outdraft.core.request import Request
from outdraft.testing.audit import require
from outdraft.testing.contract.ground import GREEDY, PENALISED, PENALISED_SEEDED, SEEDED, WARPED, agrees, requests
from outdraft.testing.subject import Outcome, Subject, collect, join, run
from outdraft.verify.auto import Auto


def greedy_equals_reference(
    subject: Subject, *, depths: Seq[int] = (1, 2, 3, 5, 8), penalised: Seq[int] = (3, 5)
) -> None:
    """At short and long draft lengths the greedy ids are those of plain decoding; penalties too, at some."""
    for params, lengths in ((GREEDY, depths), (PENALISED, penalised)):
        batch = requests(params)
        wanted = [subject.oracle(request) for request in batch]
        for depth in lengths:
            for outcome, ids in zip(run(subject.engine(depth=depth), batch), wanted, strict=True):
                agrees(subject, outcome, ids, f"greedy, k={depth}")


def seeded_equals_reference(subject: Subject) -> None:
    """The same seed writes the same text with this drafter, at any length, as with none: also warped and penalised."""
    for params, depths in ((SEEDED, (1, 4, 7)), (WARPED, (2, 5)), (PENALISED_SEEDED, (3, 6))):
        batch = requests(params)
        wanted = [subject.oracle(request) for request in batch]
        for depth in depths:
            outcomes = run(subject.engine(depth=depth, verifier=Auto()), batch)
            for outcome, ids in zip(outcomes, wanted, strict=True):
                agrees(subject, outcome, ids, f"seed {params.seed}, k={depth}, rule auto")


def alone_equals_batch(subject: Subject) -> None:
    """A request's text does not depend on who else is in the batch, nor on the order; alone it is the same."""
    for params in (GREEDY, SEEDED):
        batch = requests(params)
        wanted = [subject.oracle(request) for request in batch]
        for order in ((4, 2, 0, 3, 1), (3, 1, 4), (0,), (2,), (3,)):
            outcomes = run(subject.engine(), [batch[i] for i in order])
            for outcome, i in zip(outcomes, order, strict=True):
                agrees(subject, outcome, wanted[i], f"in a batch, order {order}")


WITH_BITS: tuple[Request, ...] = (
    *requests(replace(GREEDY, logprobs=2, prompt_logprobs=1))[1:4],
    *requests(replace(SEEDED, logprobs=2))[1:4],
)


def bits_do_not_depend_on_the_draft(subject: Subject, *, asked: Seq[Request] = WITH_BITS) -> None:
    """In exact mode a token's log probability has the same bits, in float32 too, whatever pass it was scored in: alone
    and plainly decoded, or drafted among others.

    So have those of the prompt, which are asked for beside the greedy texts.
    """
    narrow = subject.in_float32()
    alone = narrow.engine()  # for one after the other
    for drafted in run(narrow.engine(depth=5), asked):
        (plain,) = run(alone, [replace(drafted.seq.request, num_speculative_tokens=0)])
        agrees(subject, drafted, plain.seq.output, "float32")
        bits = [
            [entry for event in outcome.events for entry in (*event.prompt_logprobs, *event.logprobs)]
            for outcome in (plain, drafted)
        ]
        require(bits[0] == bits[1], f"{subject.row.name}: float32 log probabilities differ from plain decoding's")


def joins_and_cancels(subject: Subject) -> None:
    """Requests come and go in mid-flight; the others are unchanged, and a cancelled one wrote a true beginning."""
    for params in (GREEDY, SEEDED):
        batch = requests(params)
        wanted = [subject.oracle(request) for request in batch]
        engine = subject.engine()
        outcomes: dict[int, Outcome] = {}
        join(engine, outcomes, batch[:3])
        for _ in range(4):
            collect(engine, outcomes)
        join(engine, outcomes, batch[3:4])
        engine.cancel(outcomes[1].seq)
        for _ in range(2):
            collect(engine, outcomes)
        join(engine, outcomes, batch[4:])
        engine.cancel(outcomes[4].seq)  # while still waiting
        while engine.has_work:
            collect(engine, outcomes)
        for i in (0, 2, 3):
            agrees(subject, outcomes[i], wanted[i], "beside requests that come and go")
        cancelled = outcomes[1].seq
        require(cancelled.finish_reason == "cancelled", f"a cancelled request says {cancelled.finish_reason!r}")
        agrees(subject, outcomes[1], wanted[1][: cancelled.num_output], "cancelled")
