"""A program that compiles forms to see whether that ends well: each in a process of its own, within its limits.

    stdin    the vocabulary, once; then one form after another        (pickled, each behind its size in 8 bytes)
    stdout   what came of each form: a table                          (likewise)

It is run by its path and imports nothing of outdraft, so that it starts at once. Forms are compiled in forks of it,
which have little stack, as threads may have, and are ended by the system where they take too much processor time or
memory: the library then ends its process, and no thread survives that.
"""

import ctypes
import os
import pickle
import resource
import select
import signal
import struct
import sys
import threading
from contextlib import suppress
from time import thread_time
from typing import Any, BinaryIO

IDLE = 600.0  # seconds without a form, after which the program ends; the next form starts another
_STACK = 512 << 10  # bytes; the smallest that threads have on the systems that we know
_ARENA = 128 << 20  # addresses that a thread's memory may reserve and never use


def send(stream: BinaryIO, message: Any) -> None:
    """Write one message: its length in 8 bytes, then its pickle."""
    data = pickle.dumps(message)
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """One message. Raises `EOFError` at the end."""
    size = struct.unpack("<Q", _read(stream, 8))[0]
    return pickle.loads(_read(stream, size))


def _read(stream: BinaryIO, size: int) -> bytes:
    """All of it: a pipe gives what it has, and a large vocabulary does not fit into one."""
    data = bytearray()
    while len(data) < size:
        if not (more := stream.read(size - len(data))):
            raise EOFError
        data += more
    return bytes(data)


class _Vocabulary:
    """What the library asks of a tokenizer; nothing is forced, so that no text is ever cut into tokens."""

    bos_token_id = None

    def __init__(self, tokens: list[bytes]) -> None:
        self.tokens = tokens
        self.eos_token_id = len(tokens) - 1
        self.special_token_ids = [self.eos_token_id]

    def __call__(self, text: str | bytes) -> list[int]:
        return []


def main() -> None:
    """Answer forms until there are no more."""
    import llguidance  # type: ignore[import-not-found,unused-ignore]

    stdin, stdout = open(0, "rb", buffering=0), open(1, "wb", buffering=0)  # noqa: SIM115
    asked: dict[str, Any] = receive(stdin)
    vocabulary = _Vocabulary(asked["tokens"])
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(vocabulary), n_vocab=len(vocabulary.tokens))
    limits = llguidance.LLParserLimits(**asked["limits"])
    threading.stack_size(_STACK)

    def compiled(grammar: str) -> dict[str, Any]:
        before, began = _bytes_in_use(), thread_time()
        matcher = llguidance.LLMatcher(tokenizer, grammar, log_level=0, limits=limits)
        size, error = _bytes_in_use() - before, str(matcher.get_error())
        if not error:  # the first mask, as the first text asks for it
            begun = matcher.deep_copy()
            begun.is_accepting(), begun.compute_logit_bias()
        return {"error": error, "bytes": max(0, size), "seconds": thread_time() - began}

    while select.select([stdin], [], [], IDLE)[0]:
        grammar = receive(stdin)
        send(stdout, _in_a_fork(lambda grammar=grammar: compiled(grammar), asked["seconds"], asked["bytes"]))


def _in_a_fork(work: Any, seconds: float, most_bytes: int) -> dict[str, Any]:
    """What the work gives; or `signal`, which ended its process."""
    reads, writes = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.close(reads)
            _limit(seconds, most_bytes)
            thread = threading.Thread(target=lambda: send(open(writes, "wb"), work()))  # noqa: SIM115
            thread.start()
            thread.join()
        finally:
            os._exit(0)
    os.close(writes)
    found: dict[str, Any] = {}
    with open(reads, "rb") as stream, suppress(EOFError):
        found = receive(stream)
    status = os.waitpid(pid, 0)[1]
    return found or {"signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else int(signal.SIGABRT)}


def _limit(seconds: float, most_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        with open("/proc/self/statm") as file:
            taken = int(file.read().split()[0]) * resource.getpagesize()
        most = taken + most_bytes + _ARENA
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    except (OSError, ValueError):  # a system without it has the limit of time alone
        pass
    signal.setitimer(signal.ITIMER_PROF, seconds)  # of processor time; its signal ends the process


def _bytes_in_use() -> int:
    """What the C library has given out; where it does not report that, what the process has had at most."""
    try:
        info = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    info.restype = _MallocInfo
    counts = info()
    return int(counts.uordblks + counts.hblkhd)


class _MallocInfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


if __name__ == "__main__":
    try:
        main()
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        os._exit(0)  # the parent has ended
