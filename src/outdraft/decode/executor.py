"""Who works while the target's pass runs: one after the other, or a drafter's run-ahead in a thread beside the pass.

    serial      draft | pass | ahead | commit          the thread helps where the pass waits for something that the
    overlapped  draft | pass | commit                  drafter does not use: a disk, another device
                      | ahead |

The drafter is joined before anything is committed, so the text of a sequence changes under nobody's hands.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from threading import Event
from typing import Protocol

import torch

from outdraft.core.drafter import Drafter
from outdraft.core.packing import PackedDrafts

Work = Callable[[Callable[[], bool]], None]  # told by its argument whether the pass is over


class Executor(Protocol):
    """Runs `work`, if there is any, beside the body of a `with` or after it; errors of both come out of the `with`."""

    def beside(self, work: Work | None) -> AbstractContextManager[None]:
        """The body is the target's pass."""
        ...


class Serial:
    """First the pass, then all of the work."""

    @contextmanager
    def beside(self, work: Work | None) -> Iterator[None]:
        """See `Executor`."""
        yield
        if work is not None:
            work(lambda: False)


class Overlapped:
    """The work runs in a thread of its own, and is told when the pass is over."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="outdraft-ahead")

    @contextmanager
    def beside(self, work: Work | None) -> Iterator[None]:
        """See `Executor`. Where both fail, the pass's error is raised."""
        if work is None:
            yield
            return
        over = Event()

        def run() -> None:
            with torch.inference_mode():  # a thread begins without it
                work(over.is_set)

        under_way = self._thread.submit(run)
        try:
            yield
        finally:
            over.set()
            failed = under_way.exception()
        if failed is not None:
            raise failed


def ahead_of(drafter: Drafter, packed: PackedDrafts) -> Work | None:
    """What the drafter would do beside this pass; None: nothing."""
    ahead = getattr(drafter, "ahead", None)
    judged = [(seq, draft) for seq, draft in zip(packed.seqs, packed.drafts, strict=True) if draft is not None]
    if ahead is None or not judged:
        return None
    seqs, drafts = [seq for seq, _ in judged], [draft for _, draft in judged]
    return lambda is_over: ahead(seqs, drafts, is_over)
