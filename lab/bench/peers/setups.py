"""One engine on the weights of a GGUF target, set up and started; ours too runs in a process of its own.

Data in: a `Setup` and where the engines are; data out: a `Started`, which writes texts.
"""

import os
import sys
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.bench.peers.gguf_target import whole, whole_draft
from lab.bench.peers.process import WORKERS, PeerMissing, Process
from lab.bench.peers.spec import KINDS
from lab.bench.peers.weights import whole_gguf
from outdraft.bench.load.processes import wait_until_idle
from outdraft.bench.shelf import Shelf
from outdraft.options.errors import ConfigError
from outdraft.weights.digest import digest_weights

ENGINES = {"outdraft": "outdraft", "llama_cpp": "llama.cpp", "openvino": "OpenVINO", "vllm": "vLLM"}
_MODES = {"plain": "plain", "assisted": "draft model", "lookup": "prompt look-up", "default": "as it is by default"}
_ROUNDED = {"int4", "int8", "fp16"}  # by OpenVINO's own exporter
STORED = "as stored"  # the GGUF file itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """`weights`: `STORED`, bfloat16, float32, or OpenVINO's names. `k`: draft tokens a pass; 0: the engine's own."""

    engine: str
    weights: str
    mode: str = "plain"
    k: int = 0

    @property
    def label(self) -> str:
        """As it stands in a table: "llama.cpp, as stored: draft model, k = 4"."""
        name = ENGINES.get(self.engine, self.engine)
        return f"{name}, {self.weights}: {_MODES.get(self.mode, self.mode)}" + (f", k = {self.k}" if self.k else "")

    @property
    def alone(self) -> "Setup":
        """The same engine on the same weights without any guess."""
        return Setup(engine=self.engine, weights=self.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What all setups share. `places`: engine -> its Python, for llama.cpp the path of llama-server."""

    target: Path
    shelf: Shelf
    places: Mapping[str, str]
    threads: int
    max_len: int


class Started:
    """A loaded engine. `close` ends it."""

    def __init__(self, process: Process, pids: Seq[int], versions: Mapping[str, str]) -> None:
        self.versions = dict(versions)
        self._process, self._pids = process, list(pids)

    def write(self, prompt: Seq[int], max_tokens: int, *, still: bool = False) -> dict[str, Any]:
        """What its worker says of one greedy text. `still`: return when it no longer uses the processor."""
        told = self._process.ask("generate", prompt=list(prompt), max_tokens=max_tokens)
        self._pids = told.pop("pids", self._pids)
        if still:
            wait_until_idle(self._pids)
        return told

    def close(self) -> None:
        self._process.close()


def start(setup: Setup, stage: Stage) -> Started:
    """Start its process, make its files, load them.

    Raises:
        PeerMissing: it is not installed; the message says how to.
        PeerError: it failed.
    """
    place = stage.places.get(setup.engine)
    if place is None and setup.engine not in ("outdraft", "transformers"):
        raise PeerMissing(f"{setup.engine}: name it with --at {setup.engine}=PATH; {KINDS[setup.engine].install}")
    program = place if setup.engine == "llama_cpp" else None
    python = None if setup.engine == "llama_cpp" else place
    ours = {"PYTHONPATH": os.pathsep.join(sys.path), "OUTDRAFT_CACHE": "off"} if setup.engine == "outdraft" else {}
    script = [str(WORKERS / "serve.py"), f"with_{setup.engine}"]
    process = Process(setup.label, python, script, threads=stage.threads, environ=ours)
    try:
        versions = process.ask("hello", program=program)["versions"]
        given: dict[str, str | None] = {
            "model": str(_model(setup, stage, process)),
            "dtype": _dtype(setup),
            "mode": setup.mode,
        }
        given |= {"draft": str(_draft(setup, stage, process, program)) if setup.mode == "assisted" else None}
        setting = {"k": setup.k, "threads": stage.threads, "max_len": stage.max_len, "program": program}
        return Started(process, process.ask("load", **given, **setting)["pids"], versions)
    except BaseException:
        process.close()
        raise


def read_places(given: Seq[str]) -> dict[str, str]:
    """`--at ENGINE=PATH`, by engine. Raises `ConfigError`."""
    found = {}
    for text in given:
        name, equals, path = text.partition("=")
        if name not in KINDS or not equals:
            raise ConfigError(f"--at {text}: write ENGINE=PATH, with an engine of {', '.join(KINDS)}")
        found[name] = path
    return found


def _dtype(setup: Setup) -> str:
    return setup.weights if setup.weights in ("bfloat16", "float32") else "auto"


def _model(setup: Setup, stage: Stage, process: Process) -> Path:
    if setup.weights == STORED or (setup.engine == "outdraft" and setup.weights == "float32"):
        return stage.target
    if setup.weights not in _ROUNDED:
        return whole(stage.target, setup.weights, stage.shelf)
    return _rounded(whole(stage.target, "bfloat16", stage.shelf), setup.weights, stage, process)


def _draft(setup: Setup, stage: Stage, process: Process, program: str | None) -> Path | str:
    """For llama.cpp in Q8_0, the nearest to the bytes that the draft is stored in; for ours the companion's own."""
    if setup.engine == "outdraft":
        return ""
    draft = whole_draft(stage.target, stage.shelf)
    if setup.weights in _ROUNDED:
        return _rounded(draft, setup.weights, stage, process)
    if setup.engine != "llama_cpp":
        return draft

    def convert(out: Path) -> None:
        source = str(whole_gguf(draft, stage.shelf))
        process.ask("export", source=source, out=str(out), rounding="Q8_0", program=program)

    return stage.shelf.get(f"{draft.name}-Q8_0.gguf", [digest_weights(draft)], convert)


def _rounded(directory: Path, rounding: str, stage: Stage, process: Process) -> Path:
    def convert(out: Path) -> None:
        process.ask("export", source=str(directory), out=str(out), rounding=rounding, program=None)

    return stage.shelf.get(f"{directory.name}-openvino-{rounding}", [digest_weights(directory)], convert)
