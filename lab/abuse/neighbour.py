"""A steady honest neighbour: two streams without an end in a process of their own, and when each token came.

    python -m lab.abuse.neighbour ADDRESS FILE      two doubles a token: when the one before it came, and when it came

Two streams that overlap, so that one is always in the middle of a text: a pause at a text's beginning is no gap.
"""

import asyncio
import json
import os
import struct
import sys
from array import array
from pathlib import Path
from time import monotonic
from typing import IO, Any

from lab.soak_http.wire import BrokenError, Connection, StuckError, request

TOKENS = 800  # of a stream
_BODY = {
    "prompt": "The old house stood by the river",
    "max_tokens": TOKENS,
    "ignore_eos": True,
    "temperature": 0,
    "stream": True,
    "stream_interval": 1,
    "speculative": False,
}


async def stream(address: str, out: IO[bytes], first: int) -> None:
    """One text after another; the first one of `first` tokens, so that two streams do not begin together."""
    length, parent = first, os.getppid()
    while os.getppid() == parent:  # else what has started it is gone
        data = request("POST", "/v1/completions", json.dumps({**_BODY, "max_tokens": length}).encode())
        length = TOKENS
        try:
            connection = await Connection.open(address)
            await connection.send(data)
            head, before = await connection.head(), None
            if head.status != 200:
                raise BrokenError("refused")
            async for _ in connection.events(head):
                now = monotonic()
                if before is not None:
                    out.write(struct.pack("dd", before, now))
                before = now
            connection.close()
        except (BrokenError, StuckError):
            await asyncio.sleep(0.2)


async def main(address: str, path: str) -> None:
    """Until it is ended from outside, or left alone."""
    with Path(path).open("ab", buffering=0) as out:
        await asyncio.gather(stream(address, out, TOKENS // 2), stream(address, out, TOKENS))


class Neighbour:
    """The process, and the gaps that it has noted in `path`."""

    def __init__(self, address: str, path: Path) -> None:
        self._address, self._path = address, path
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> "Neighbour":
        self._path.write_bytes(b"")
        words = ["-m", "lab.abuse.neighbour", self._address, str(self._path)]
        self._process = await asyncio.create_subprocess_exec(sys.executable, *words)
        return self

    async def __aexit__(self, *_: Any) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    def mark(self) -> int:
        """How much is noted now: where a later `gaps` begins."""
        return self._path.stat().st_size

    def gaps(self, mark: int) -> list[float]:
        """Seconds between tokens since the mark, and the gap that is still open if it is the longest."""
        with self._path.open("rb") as file:
            file.seek(mark)
            data = file.read()
        told = array("d", data[: len(data) // 16 * 16])
        found = [now - before for before, now in zip(told[::2], told[1::2], strict=True)]
        last = told[-1] if told else self._last()
        still = monotonic() - last
        return [*found, still] if still > max(found, default=0.0) else found

    def _last(self) -> float:
        data = self._path.read_bytes()[-16:]
        return struct.unpack("dd", data)[1] if len(data) == 16 else monotonic()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
