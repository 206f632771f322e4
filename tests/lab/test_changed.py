"""What `make test-changed` takes: near tests, the rows of drafters that changed, sentinels, and nothing far away."""

import subprocess

from contracts.spec_rows import ROWS
from contracts.test_drafters import SENTINELS

from lab import changed
from lab.changed import MOST, TABLE, arguments, changed_files, drafters, importers, near


def rows_of(asked):
    """Drafters of the table that are asked everything."""
    names = {row.name: row.drafter for row in ROWS}
    found = [
        one.partition("[")[2].rpartition("-texts]")[0] for one in asked if one.startswith(f"{TABLE}::test_contract")
    ]
    return {names[name] for name in found if name}


def test_a_changed_drafter_asks_its_rows_and_its_tests_and_the_sentinels():
    asked = arguments(["src/outdraft/drafters/medusa/drafter.py"])
    assert rows_of(asked) == {"medusa", *SENTINELS}
    assert "tests/training/test_medusa.py" in asked and "tests/server/test_ends.py" not in asked


def test_a_far_reaching_change_takes_the_nearest_files():
    asked = arguments(["src/outdraft/core/request.py"])
    files = [one for one in asked if "::" not in one]
    assert MOST <= len(files) <= MOST + 3 and rows_of(asked) == {*SENTINELS}
    assert any(one.startswith("tests/core/") for one in files)


def test_a_page_asks_no_drafter():
    assert arguments(["docs/tour.md"])[1:] == list(changed.BESIDE["docs/"])


FILES = [
    ("src/outdraft/drafters/shared/a.py", "import torch"),
    ("src/outdraft/drafters/one.py", "from outdraft.drafters.shared.a import f"),
    ("src/outdraft/drafters/two/net.py", "from outdraft.drafters.shared import a"),
    ("src/outdraft/drafters/three.py", ""),
    ("tests/drafters/test_one.py", "from outdraft.drafters import one"),
    ("tests/drafters/test_three.py", "from outdraft.drafters.three import f"),
    ("tests/server/test_far.py", "import tests.drafters.test_one"),
]


def test_distances_are_counted_along_imports():
    graph, tests = importers(FILES), [path for path, _ in FILES if path.startswith("tests/")]
    assert near(["src/outdraft/drafters/shared/a.py"], graph, tests) == {
        "tests/drafters/test_one.py": 2,
        "tests/server/test_far.py": 3,
    }
    assert near(["tests/drafters/test_three.py"], graph, tests) == {"tests/drafters/test_three.py": 0}
    assert drafters(["src/outdraft/drafters/shared/a.py"], graph) >= {"one", "two"}
    assert "three" not in drafters(["src/outdraft/drafters/shared/a.py"], graph)


def test_what_git_says_is_taken(tmp_path, monkeypatch):
    """Committed on the branch, not committed, and new; not what the base has gained since."""
    monkeypatch.setattr(changed, "ROOT", tmp_path)

    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    def write(name, text=""):
        (tmp_path / name).write_text(text)

    git("init")
    for name in ("a.py", "b.py", "c.py"):
        write(name)
    git("add", "-A")
    git("commit", "-m", "first")
    git("checkout", "-b", "mine")
    write("a.py", "1")
    git("commit", "-am", "second")
    git("checkout", "main")
    write("c.py", "1")
    git("commit", "-am", "third")
    git("checkout", "mine")
    write("b.py", "1")
    write("d.py")
    assert changed_files("main") == ["a.py", "b.py", "d.py"]
