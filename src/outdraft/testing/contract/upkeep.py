"""What must stay true behind the text: the cache, and the drafter's own state."""

from outdraft.testing.audit import require
from outdraft.testing.contract.ground import GREEDY, SEEDED, requests
from outdraft.testing.subject import Outcome, Subject, collect, join, run, state_size


def cache_equals_recompute(subject: Subject) -> None:
    """After every commit the target's cache is what one fresh pass over the same tokens leaves behind."""
    for params in (GREEDY, SEEDED):
        run(subject.engine(recheck=True, depth=5), requests(params))


def leaks_nothing(subject: Subject) -> None:
    """What `begin` made, `end` takes away, whether a request finished or was cancelled; running again adds nothing."""
    engine = subject.engine()
    drafter = engine.parts.drafter
    sizes = []
    for _ in range(3):
        outcomes: dict[int, Outcome] = {}
        join(engine, outcomes, requests(SEEDED))
        for _ in range(8):
            collect(engine, outcomes)
        engine.cancel(next(iter(outcomes.values())).seq)
        while engine.has_work:
            collect(engine, outcomes)
        sizes.append(state_size(drafter, outside=[engine.parts.target, getattr(engine.parts.target, "target", None)]))
    require(
        subject.row.remembers or sizes[0] == sizes[1] == sizes[2],
        f"{subject.row.name} keeps state of requests that are over: its containers hold {sizes} entries after "
        "one, two and three batches of the same requests; forget them in `end`, or set `remembers` in the row",
    )
