"""`outdraft serve` as a process: started with its defaults, bounded in memory, watched from outside.

What is read of it counts its children too: where a compiler of grammars runs in a process of its own, that is the
server's work as well.
"""

import asyncio
import os
import re
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from lab.soak_http.process import END, ServerProcess

ROOM = 4 << 30  # bytes of address space that it may take beyond those of its start
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = resource.getpagesize()


class Served(ServerProcess):
    """`flags`: of the command. `key`: sent where the server asks for one. `log`: a file for its standard error."""

    def __init__(self, model: str, *flags: str, log: IO[bytes], key: str | None = None) -> None:
        words = ["-m", "outdraft", "serve", model, "--port", "0", *flags]
        settings = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        super().__init__(words, stderr=log, env=settings)
        self.headers = {} if key is None else {"Authorization": f"Bearer {key}"}

    async def __aenter__(self) -> "Served":
        await super().__aenter__()
        size = int(Path(f"/proc/{self.pid}/statm").read_text().split()[0]) * _PAGE
        _, hard = resource.prlimit(self.pid, resource.RLIMIT_AS)  # a child's own limit may still be any
        resource.prlimit(self.pid, resource.RLIMIT_AS, (size + ROOM, hard))
        return self

    def _address(self, line: bytes) -> str:
        found = re.search(r"https?://\S+", line.decode())
        if found is None:
            raise RuntimeError(f"the server did not print its address: {line!r}")
        return found[0].rstrip("/")

    @property
    def cpu(self) -> float:
        """Seconds of processor time so far, with those of children that have ended."""
        return sum(_cpu(pid) for pid in self._all())

    @property
    def resident(self) -> int:
        """Bytes of memory, with those of its children."""
        return sum(_resident(pid) for pid in self._all())

    @property
    def num_threads(self) -> int:
        """Threads of the server itself."""
        return len(os.listdir(f"/proc/{self.pid}/task"))

    async def end(self) -> int:
        """SIGTERM; its exit status."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self._process.wait(), END)

    async def killed(self) -> None:
        """Ended at once, whatever it is doing."""
        await self.__aexit__()

    def _all(self) -> list[int]:
        return [self.pid, *_children(self.pid)]


def _children(pid: int) -> Iterator[int]:
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found = [int(one) for one in path.read_text().split()]
        except OSError:  # the thread has ended
            continue
        for child in found:
            yield child
            yield from _children(child)


def _cpu(pid: int) -> float:
    try:
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, told[11:15])) / _TICK


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def readings(served: Served) -> dict[str, Any]:
    """Memory, descriptors and threads, as a record has them."""
    return {"mib": served.resident >> 20, "descriptors": served.num_files, "threads": served.num_threads}
