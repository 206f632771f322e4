"""Case n damages a file of kind n, round after round, as the dice of (seed, n) fall."""

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from outdraft.testing.mutated_files.stage import Files, Subject
from outdraft.testing.sweep.case import Case


def load(directory: Path, seed: int) -> Callable[[int], Case]:
    """The case of a number: which file, and what is done to it."""
    files = Files(directory)
    subjects = files.subjects()

    def case_of(number: int) -> Case:
        subject, dice = subjects[number % len(subjects)], Random(f"{seed} {number}")
        told, data = subject.damage((subject.home / subject.file).read_bytes(), dice)
        return Case(name=f"{subject.name}: {told}", run=lambda: _read(files, subject, data))

    return case_of


def _read(files: Files, subject: Subject, data: bytes) -> None:
    copy = files.directory / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    if subject.home.name == "others":
        copy.mkdir()
        (copy / subject.file).write_bytes(data)
        subject.read(copy / subject.file)
    else:
        shutil.copytree(subject.home, copy)
        (copy / subject.file).write_bytes(data)
        subject.read(copy)
