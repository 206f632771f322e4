"""Case n damages a file of kind n, round after round, as the dice of (seed, n) fall.

before   most files are damaged, and then read
held     one in eight is read whole, changed in its place while it may be mapped, and used again
no file  one in twenty is no file at all: a pipe, a directory, a link to itself, a file without an end, or nothing
"""

import os
import shutil
from collections.abc import Callable
from collections.abc import Sequence as Seq
from pathlib import Path
from random import Random

from lab.mutated_files.mutate import change_in_place
from lab.mutated_files.stage import Files, Subject
from lab.sweep.case import Case

_SHARES = (1 / 20, 1 / 20 + 1 / 8)
_NO_FILES: dict[str, Callable[[Path], None]] = {
    "a pipe": lambda path: os.mkfifo(path),
    "a directory": lambda path: path.mkdir(),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a file without an end": lambda path: path.symlink_to("/dev/zero"),
    "a link to nothing": lambda path: path.symlink_to("there is no such file"),
    "not there": lambda path: None,
}
_ENDLESS = ("a pipe", "a file without an end")
_STREAMED = ("documents.jsonl",)  # a text that is read line by line may well come from a pipe


def load(directory: Path, seed: int) -> Callable[[int], Case]:
    """The case of a number: which file, and what is done to it."""
    files = Files(directory)
    return crossed(files, files.subjects(), seed)


def crossed(files: Files, subjects: Seq[Subject], seed: int) -> Callable[[int], Case]:
    """The same for these files alone."""

    def case_of(number: int) -> Case:
        subject, dice = subjects[number % len(subjects)], Random(f"{seed} {number}")
        drawn = dice.random()
        if drawn < _SHARES[0]:
            told = dice.choice([one for one in _NO_FILES if subject.file not in _STREAMED or one not in _ENDLESS])
            return Case(name=f"{subject.name}: is {told}", run=lambda: _read_no_file(files, subject, told))
        data = (subject.home / subject.file).read_bytes()
        if drawn < _SHARES[1]:
            told, change = change_in_place(data, dice)
            return Case(name=f"{subject.name}: held, {told}", run=lambda: _use_changed(files, subject, change))
        told, damaged = subject.damage(data, dice)
        return Case(name=f"{subject.name}: {told}", run=lambda: _read(files, subject, damaged))

    return case_of


def _read(files: Files, subject: Subject, data: bytes) -> None:
    whole, file = _copied(files, subject)
    file.write_bytes(data)
    subject.open(whole)()


def _use_changed(files: Files, subject: Subject, change: Callable[[Path], None]) -> None:
    whole, file = _copied(files, subject)
    use = subject.open(whole)
    use()
    if file.exists():  # else it was moved to where it is read
        change(file)
    else:
        change(subject.moved_to(whole))
    use()


def _read_no_file(files: Files, subject: Subject, kind: str) -> None:
    whole, file = _copied(files, subject)
    file.unlink()
    _NO_FILES[kind](file)
    subject.open(whole)()


def _copied(files: Files, subject: Subject) -> tuple[Path, Path]:
    """A copy of the whole thing, and of the file in it."""
    copy = files.directory / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    if subject.home.name == "others":
        copy.mkdir()
        shutil.copyfile(subject.home / subject.file, copy / subject.file)
        return copy / subject.file, copy / subject.file
    shutil.copytree(subject.home, copy)
    return copy, copy / subject.file
