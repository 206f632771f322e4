"""Which test runs which line, and how long it takes: each folder of tests is run once under coverage.

Data out: a JSON file a folder in the state folder, made again when its tests or the source of the area that asks have
changed.
"""

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import coverage
import pytest

from mutation.mutants import ROOT, SOURCE

NEAR = {  # area -> the tests that ought to notice a fault in it
    "verify": ("tests/verify", "tests/decode", "tests/contracts/test_option_pages.py"),
    "sampling": ("tests/sampling", "tests/verify", "tests/decode", "tests/lab/test_fuzz.py"),
    "cache": ("tests/cache", "tests/contracts/test_caches.py", "tests/decode"),
    "control": ("tests/control", "tests/engine", "tests/contracts/test_option_pages.py"),
    "decode": ("tests/decode", "tests/contracts/test_scripted.py", "tests/verify", "tests/engine"),
    "engine": ("tests/engine", "tests/integration"),
    "drafters": ("tests/drafters", "tests/contracts/test_drafters.py", "tests/contracts/test_option_pages.py"),
}


@dataclass(frozen=True, slots=True)
class Cover:
    """`tests`: node id -> seconds; `lines`: file -> line -> node ids."""

    tests: dict[str, float]
    lines: dict[str, dict[int, set[str]]]

    def tests_of(self, file: str, lines: range) -> set[str]:
        """The tests that run one of these lines; all that touch the file or have its name as their last parameter, if
        those run when it is imported."""
        known, name = self.lines.get(file, {}), Path(file).parts[1].removesuffix(".py")
        found = {test for line in lines for test in known.get(line, ())}
        if not found and any(line in known for line in lines):
            found = {test for tests in known.values() for test in tests}
            found |= {test for test in self.tests if test.endswith(f"-{name}]")}
        return found


def cover_of(area: str, state: Path) -> Cover:
    """What the tests near an area run of it. Folders whose record is missing or stale are run."""
    tests: dict[str, float] = {}
    lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for folder in NEAR[area]:
        known = _read(folder, area, state)
        names = list(known["tests"])
        tests |= known["tests"]
        for file, rows in known["lines"].items():
            if file.startswith(f"{area}/"):
                for line, numbers in rows.items():
                    lines[file][int(line)] |= {names[number] for number in numbers}
    return Cover(tests, lines)


def _read(folder: str, area: str, state: Path) -> dict:
    path = state / f"cover-{folder.replace('/', '-')}.json"
    if path.exists():
        known = json.loads(path.read_text())
        if _is_fresh(known, folder, area):
            return known
        path.unlink()
    state.mkdir(parents=True, exist_ok=True)
    child = os.fork()
    if not child:
        try:
            _measure(folder, path)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    if not path.exists():
        raise RuntimeError(f"{folder} could not be run under coverage")
    known = json.loads(path.read_text())
    if known["failed"]:
        raise RuntimeError(f"{folder} must pass before faults are planted; these fail: {known['failed'][:5]}")
    return known


class _Watch:
    """A pytest plug-in: tells coverage which test runs, and notes what it costs and what fails."""

    def __init__(self, measuring: coverage.Coverage) -> None:
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        self._measuring = measuring

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Set-up and tear-down included."""
        self._measuring.switch_context(item.nodeid)
        began = process_time()
        yield
        self.seconds[item.nodeid] = round(process_time() - began, 4)
        self._measuring.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Of every phase of a test."""
        if report.failed:
            self.failed.append(report.nodeid)


def _measure(folder: str, path: Path) -> None:
    """In a child: write the record of one folder."""
    os.chdir(ROOT)
    sources = [str(SOURCE / area) for area in NEAR]
    measuring = coverage.Coverage(data_file=None, source=sources, config_file=False, messages=False)
    watch = _Watch(measuring)
    measuring.start()
    pytest.main(["-q", "-p", "no:cacheprovider", folder], plugins=[watch])
    measuring.stop()
    data, numbers = measuring.get_data(), {test: i for i, test in enumerate(watch.seconds)}
    lines = {
        Path(file).relative_to(SOURCE).as_posix(): {
            line: sorted(numbers[test] for test in tests if test)
            for line, tests in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    digests = {area: _digest(SOURCE / area) for area in NEAR}
    record = {
        "digests": digests,
        "folder": _digest(ROOT / folder),
        "failed": watch.failed,
        "tests": watch.seconds,
        "lines": lines,
    }
    path.write_text(json.dumps(record))


def _is_fresh(known: dict, folder: str, area: str) -> bool:
    """Neither the source of the area nor the tests have changed since."""
    return known["digests"][area] == _digest(SOURCE / area) and known["folder"] == _digest(ROOT / folder)


def _digest(place: Path) -> str:
    paths = [place] if place.is_file() else sorted(place.rglob("*.py"))
    texts = [path.read_bytes() for path in paths]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()
