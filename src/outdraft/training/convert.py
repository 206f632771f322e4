"""A draft in another project's files, or another project's in ours: read by the learner that knows it, and written.

Which kinds and layouts there are, the learners say (`core/head_format.py`); none is named here.
"""

import json
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from outdraft.core.learner_registry import find_learner
from outdraft.drafters.shared.heads.joint import TAUGHT
from outdraft.models.files.foreign_heads import all_formats, recognise
from outdraft.models.files.load import load_model
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.options.near_miss import near_miss
from outdraft.training.record import RECORD, fingerprint, read_record, require_target
from outdraft.weights.hub import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A draft that was written in another layout: its kind, both layouts, and how it is served there."""

    kind: str
    read_as: str
    written_as: str
    lines: dict[str, str]  # server -> the line that serves it there
    taps: tuple[int, ...]  # what a network on features reads of its target; (): a draft of another kind
    checks: str  # how `outdraft train check` is asked about what was written, or why it cannot be


def convert(source: str, to: str, target: str, out: Path) -> Converted:
    """Write the draft in `source`, which belongs to `target`, to `out`.

    to: a layout, or a server that reads one. Raises `ConfigError` and `CapabilityError` before anything is written,
    also for another target's draft where its record says which, and `ModelLoadError` for damaged files.
    """
    words = sorted({word for _, one in all_formats() if one.write for word in (one.name, *one.served)})
    if to not in words:
        raise ConfigError(f"--to {to} is no layout or server{near_miss(to, words)}; known: {', '.join(words)}")
    directory = resolve(source, also=["*_lm_head.pt", "pytorch_model.bin"])
    found = recognise(directory) or next(((kind, one) for kind, one in all_formats() if one.by_name(directory)), None)
    if found is None:
        known = sorted({one.summary for _, one in all_formats()})
        raise ConfigError(f"{directory} holds no draft in a layout that outdraft reads ({'; '.join(known)})")
    kind, read = found
    formats = [one for one in find_learner(kind).formats if one.write]
    write = next((one for one in formats if to == one.name or to in one.served), None)
    if read is None or write is None or write.write is None:
        can = sorted({word for one in formats for word in (one.name, *one.served)}) or ["nothing but our own layout"]
        raise CapabilityError(f"{to} has no layout for a draft of the kind {kind}; there is: {', '.join(can)}")
    with _writing(out):
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigError(f"--out {out} exists: name a new directory")
    if (directory / RECORD).exists():  # trained here: another target may be of the same shape
        record = read_record(directory)
        require_target(record, directory, target, fingerprint(load_model(resolve(target), record.dtype)))
    model = None if read.by_name(directory) else load_model(resolve(target))
    net = read.read(directory, model, None)
    with _writing(out):
        write.write(net, model, target, out)
        for name in (RECORD, TAUGHT):  # outdraft reads every layout that it writes; which target learned along
            if (directory / name).is_file():
                shutil.copyfile(directory / name, out / name)
    checks = f"it has no {RECORD}, so there is nothing that `outdraft train check` could compare"
    if (out / RECORD).exists():
        checks = _line("next: outdraft train check {out} --target {target}", target, out)
    lines = {
        server: _line(line, target, out)
        for server, line in write.served.items()
        if server != "outdraft" or not write.by_name(out)  # which would not run it
    }
    form = getattr(net, "form", None) or getattr(net, "config", None)  # of a network on chosen states
    return Converted(
        kind=kind, read_as=read.name, written_as=write.name, lines=lines, taps=getattr(form, "taps", ()), checks=checks
    )


def _line(line: str, target: str, out: Path) -> str:
    """A command with both places in it, as a shell reads it."""
    words = []
    for word in shlex.split(line):
        for name, place in (("{target}", target), ("{out}", str(out))):
            told = json.dumps(place, ensure_ascii=False)[1:-1] if word.startswith('{"') else place
            word = word.replace(name, told)
        words.append(word)
    return shlex.join(words)


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """Raise `ConfigError` for whatever the operating system refuses at `out`."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be written ({error}): name another directory") from error
