"""The peer's end of the line: one JSON object a line on stdin, one answer a line on stdout, everything else to stderr.

    {"hello": {...}}      -> {"versions": {...}}, or {"missing": "what to install"}
    {"export": {...}}     -> {"done": true}             the peer's own converter writes a file or a directory
    {"load": {...}}       -> {"pids": [...]}            the processes that will work
    {"generate": {...}}   -> {"tokens": [...], "seconds": s, "first_seconds": s, "num_first": n, ...}
    any of them           -> {"error": "..."}

Between two lines nothing runs: the process waits in a read. The end of stdin is the end of the process.
"""

import importlib
import json
import os
import sys
import traceback
from typing import Any


def main(name: str) -> None:
    """Answer until stdin ends. `name`: the module beside this one that knows the peer."""
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a library that prints does not break the line
    peer: Any = None
    engine: Any = None
    for line in sys.stdin:
        ((verb, given),) = json.loads(line).items()
        try:
            if verb == "hello":
                peer = importlib.import_module(name)
                answer = {"versions": peer.versions(**given)}
            elif verb == "export":
                peer.export(**given)
                answer = {"done": True}
            elif verb == "load":
                engine = peer.Engine(**given)
                answer = {"pids": engine.pids}
            else:
                answer = engine.generate(**given)
        except Exception as error:  # whatever a foreign library raises is reported on our side
            traceback.print_exc()
            absent = verb in ("hello", "export") and isinstance(error, ImportError | FileNotFoundError)
            answer = {"missing": str(error)} if absent else {"error": f"{type(error).__name__}: {error}"}
        lines.write(json.dumps(answer) + "\n")
        lines.flush()
    if engine is not None:
        engine.close()


if __name__ == "__main__":
    main(sys.argv[1])
