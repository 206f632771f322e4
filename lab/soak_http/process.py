"""The server's process: started, watched from outside, ended."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

START = 600.0  # seconds in which it must be ready
END = 300.0


class ServerProcess:
    """`words`: its command line behind the interpreter. Its lines are JSON, the first one with its address.

    `how`: further settings of `asyncio.create_subprocess_exec`.
    """

    def __init__(self, words: list[str], **how: Any) -> None:
        self._words, self._how = words, how
        self._process: asyncio.subprocess.Process | None = None
        self.address = ""

    @property
    def pid(self) -> int:
        """The server process's number."""
        assert self._process is not None
        return self._process.pid

    async def __aenter__(self) -> "ServerProcess":
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, *self._words, stdout=asyncio.subprocess.PIPE, **self._how
        )
        try:
            self.address = self._address(await self._line(START))
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    @property
    def is_alive(self) -> bool:
        """Whether the server process still runs."""
        return self._process is not None and self._process.returncode is None

    @property
    def memory(self) -> int:
        """Bytes that it holds."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * 4096

    @property
    def num_files(self) -> int:
        """Files and sockets that it has open."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    async def terminate(self) -> dict[str, Any]:
        """SIGTERM; what it says at its end, with its exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        told = json.loads(await self._line(END))
        return {**told, "exit": await asyncio.wait_for(self._process.wait(), END)}

    def _address(self, line: bytes) -> str:
        """Of its first line."""
        return str(json.loads(line)["address"])

    async def _line(self, within: float) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), within)
        if not line:
            raise RuntimeError(f"the server ended with status {await self._process.wait()} and said nothing")
        return line
