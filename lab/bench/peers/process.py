"""A peer's process and the line to it: one JSON object a line there, one back (`workers/serve.py` says which).

It has a session of its own, so that Ctrl-C reaches us alone; it ends when we close the line, or when we are gone. Its
stderr goes to a file, whose last words are quoted when it fails. What it allocates has large pages where the system
gives them, as our packed weights have.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from outdraft.bench.load.over_http import PeerError
from outdraft.options.errors import ConfigError, OutdraftError

WORKERS = Path(__file__).parent / "workers"
_ENVIRON = {"TOKENIZERS_PARALLELISM": "false", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
_PATIENCE = 15.0  # seconds from closing the line to the end of the process


class PeerMissing(OutdraftError):
    """A peer, or a tool of it, is not installed."""


class Process:
    """`name`: for messages. `script`: the words after the interpreter. `environ`: more of the environment."""

    def __init__(
        self,
        name: str,
        python: str | None,
        script: list[str],
        *,
        threads: int,
        environ: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  (closed with the process)
        pools = {key: str(threads) for key in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        hidden = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
        try:
            self._child = subprocess.Popen(
                [python or sys.executable, *script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                encoding="utf-8",
                env={**hidden, **pools, **_ENVIRON, **environ},
                start_new_session=True,
            )
        except OSError as error:
            self._log.close()
            reason = f"python={python} cannot be run ({error.strerror}): give the Python of the peer's environment"
            raise ConfigError(f"peer {name}: {reason}") from error

    def ask(self, verb: str, **given: Any) -> dict[str, Any]:
        """One line there and its answer.

        Raises:
            PeerMissing: it says that something is not installed.
            PeerError: it says that it failed, or it ended.
        """
        assert self._child.stdin is not None and self._child.stdout is not None
        try:
            self._child.stdin.write(json.dumps({verb: given}) + "\n")
            self._child.stdin.flush()
            line = self._child.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._child.wait()
            raise PeerError(
                f"peer {self.name} stopped at {verb!r} (exit code {code}); the end of its output: {self._last()}"
            )
        answer: dict[str, Any] = json.loads(line)
        if "missing" in answer:
            raise PeerMissing(str(answer["missing"]))
        if "error" in answer:
            raise PeerError(f"peer {self.name} failed at {verb!r}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End it by closing the line, or by force if that does not help; then all that it has started and left."""
        assert self._child.stdin is not None and self._child.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(_PATIENCE)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # no process is left, or only ended ones
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        self._child.stdout.close()
        self._log.close()

    def _last(self) -> str:
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().splitlines() if line.strip()]
        return lines[-1] if lines else "none"
