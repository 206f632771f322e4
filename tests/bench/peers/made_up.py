"""A made-up peer: the real `serve.py` beside a module that stands in for a heavy library."""

import shutil
from pathlib import Path

from lab.bench.peers import process

FAKE = """
import json, os, sys, time
print("a library that talks while it is imported")

def versions(**given):
    if given.get("program") == "absent":
        raise ImportError("No module named 'fake'")
    return {"fake": "1.0"}

def export(*, source, out, rounding, **given):
    open(out, "w").write(f"{rounding} of {source}")

class Engine:
    def __init__(self, *, model, mode, **given):
        if mode == "lookup":
            raise ValueError("no look-up today")
        self.pids, self.mode = [os.getpid()], mode

    def generate(self, *, prompt, max_tokens):
        print("a library that talks while it writes")
        if max_tokens == 13:
            sys.exit("out of luck")
        with open(os.path.join(os.path.dirname(__file__), "asked"), "a") as file:
            file.write(json.dumps([prompt, max_tokens]) + "\\n")
        told = {"tokens": [7] * max_tokens, "seconds": 0.5, "first_seconds": 0.1, "num_first": 2}
        return told if self.mode == "plain" else told | {"passes": 4, "drafted": 9, "accepted": max_tokens - 4}

    def close(self):
        open(os.path.join(os.path.dirname(__file__), "closed"), "w").write("yes")
"""


def install(folder: Path) -> Path:
    """A folder of workers, with the made-up one in transformers' place."""
    folder.mkdir()
    shutil.copy(process.WORKERS / "serve.py", folder)
    (folder / "with_transformers.py").write_text(FAKE)
    return folder
