"""Run a drafter's run-ahead after the target's pass (serial), or in a thread during it (overlapped).

    serial      draft | pass | ahead | commit          the thread helps where the pass waits for something that the
    overlapped  draft | pass | commit                  drafter does not use: a disk, another device
                      | ahead |

The drafter's thread is joined before anything is committed, so a sequence does not change while the drafter reads it.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from threading import Event
from typing import Protocol

import torch

from outdraft.core.draft import Continuation
from outdraft.core.drafter import Ahead
from outdraft.core.packing import PackedDrafts
from outdraft.decode.forced import Undrafted
from outdraft.options.errors import CacheFullError

Work = Callable[[Callable[[], bool]], None]  # its argument says whether the pass is over


class Executor(Protocol):
    """Runs `work`, if there is any, beside the body of a `with` or after it; errors of both come out of the `with`."""

    def beside(self, work: Work | None) -> AbstractContextManager[None]:
        """The body is the target's pass."""


class Serial:
    """First the pass, then all of the work."""

    @contextmanager
    def beside(self, work: Work | None) -> Iterator[None]:
        yield
        if work is not None:
            work(lambda: False)


class Overlapped:
    """The work runs in a thread of its own, and learns when the pass is over."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="outdraft-ahead")

    @contextmanager
    def beside(self, work: Work | None) -> Iterator[None]:
        """See `Executor`. Where both fail, the pass's error is raised."""
        if work is None:
            yield
            return
        if self._process != os.getpid():  # forked, and the thread is not here
            self._start()
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


class RunAhead:
    """What a drafter does beside one pass: `work`, if it is one that runs ahead; and what that leaves behind."""

    def __init__(self, ahead: Ahead | None, packed: PackedDrafts) -> None:
        self.work: Work | None = None
        self._packed = packed
        own = (draft is not None and not isinstance(draft, Undrafted) for draft in packed.drafts)
        self._judged = [i for i, is_own in enumerate(own) if is_own]
        self._found: list[Continuation | None] = []
        self._ahead = ahead
        if self._judged and ahead is not None:
            self.work = self._run

    def continued(self) -> PackedDrafts:
        """The pass's drafts, each with the token that was drafted behind it meanwhile."""
        drafts = list(self._packed.drafts)
        for i, continuation in zip(self._judged, self._found, strict=False):
            if (draft := drafts[i]) is not None and continuation is not None:
                drafts[i] = replace(draft, continuation=continuation)
        return replace(self._packed, drafts=tuple(drafts))

    def _run(self, is_over: Callable[[], bool]) -> None:
        seqs = [self._packed.seqs[i] for i in self._judged]
        drafts = [draft for i in self._judged if (draft := self._packed.drafts[i]) is not None]
        assert self._ahead is not None
        with suppress(CacheFullError):  # no room for its own rows, so it is not ahead this time
            self._found = self._ahead(seqs, drafts, is_over)
