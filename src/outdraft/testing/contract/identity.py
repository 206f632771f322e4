"""The same ids as plain decoding: at every draft length, greedy or seeded, alone or among others who come and go."""

from outdraft.testing.audit import require
from outdraft.testing.contract.ground import GREEDY, PENALISED, PENALISED_SEEDED, SEEDED, WARPED, agrees, requests
from outdraft.testing.subject import Outcome, Subject, collect, join, run
from outdraft.verify.auto import Auto


def greedy_equals_reference(subject: Subject) -> None:
    """At every draft length the greedy ids are those of plain decoding, penalties included."""
    for params, depths in ((GREEDY, range(1, 9)), (PENALISED, (3, 5))):
        wanted = [subject.oracle(request) for request in requests(params)]
        for depth in depths:
            outcomes = [run(subject.engine(depth=depth), [request])[0] for request in requests(params)]
            for outcome, ids in zip(outcomes, wanted, strict=True):
                agrees(subject, outcome, ids, f"greedy, k={depth}")


def seeded_equals_reference(subject: Subject) -> None:
    """The same seed writes the same text with this drafter, at any length, as with none: also warped and penalised."""
    for params in (SEEDED, WARPED, PENALISED_SEEDED):
        for request in requests(params):
            wanted = subject.oracle(request)
            for depth in (1, 4, 7):
                for verifier in (None, Auto()):
                    outcome = run(subject.engine(depth=depth, verifier=verifier), [request])[0]
                    agrees(subject, outcome, wanted, f"seed {params.seed}, k={depth}")


def alone_equals_batch(subject: Subject) -> None:
    """A request's text does not depend on who else is in the batch, nor on the order."""
    for params in (GREEDY, SEEDED):
        batch = requests(params)
        wanted = [subject.oracle(request) for request in batch]
        for order in ((0, 1, 2, 3, 4), (4, 2, 0, 3, 1), (3, 1, 4)):
            outcomes = run(subject.engine(), [batch[i] for i in order])
            for outcome, i in zip(outcomes, order, strict=True):
                agrees(subject, outcome, wanted[i], f"in a batch, order {order}")


def joins_and_cancels(subject: Subject) -> None:
    """Requests come and go in mid-flight; nobody else notices, and what a cancelled one wrote is a true beginning."""
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
