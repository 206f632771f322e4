"""Many callers of one engine, from threads or from asyncio: whoever holds the lock makes a step for all who wait.

    caller A  submit ---- serve (A's step: tokens for A and B) ---------------- leave
    caller B      submit ---- waits for the lock ---- served already ---- leave

The events of every request go to that request's own writer.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from threading import Lock

import torch

from outdraft.codecs.codec import Codec
from outdraft.core.drafter import forget
from outdraft.core.request import Request
from outdraft.engine.loop import Engine
from outdraft.engine.variant import network_of
from outdraft.engine.writer import Writer
from outdraft.kernels.threads import torch_threads


class Callers:
    """The engine's only door while several may stand before it."""

    def __init__(self, engine: Engine, codec: Codec | None) -> None:
        self._engine = engine
        self._codec = codec
        self.lossless = engine.parts.verifier.lossless  # kept here: an elastic engine is without parts for a moment
        self._is_native = network_of(engine.parts).kernels != "pytorch"
        self._lock = Lock()
        self._writers: dict[int, Writer] = {}

    def submit(self, requests: Seq[Request]) -> list[Writer]:
        """Queue them all; none, if one is refused."""
        writers: list[Writer] = []
        with self._lock:
            try:
                for request in requests:
                    writer = Writer(request, self._codec, lossless=self.lossless)
                    writer.seq = self._engine.add(request, writer.find_stop)
                    self._writers[writer.seq.id] = writer
                    writers.append(writer)
            except Exception:
                self._drop(writers)
                raise
        return writers

    def serve(self, is_served: Callable[[], bool]) -> None:
        """One step for everybody, unless somebody else's step has served the caller while it waited."""
        with self._lock, torch_threads(1 if self._is_native else torch.get_num_threads()):
            if is_served():
                return
            for event in self._engine.step():
                self._writers[event.seq_id].push(event)

    def leave(self, writers: Seq[Writer]) -> None:
        """Whoever has read enough; what is unfinished is cancelled."""
        with self._lock:
            self._drop(writers)

    def forget(self) -> None:
        """Have the drafter drop what it learned from requests that are over."""
        with self._lock:
            forget(self._engine.parts.drafter)

    def _drop(self, writers: Seq[Writer]) -> None:
        for writer in writers:
            self._engine.cancel(writer.seq)
            self._writers.pop(writer.seq.id, None)
