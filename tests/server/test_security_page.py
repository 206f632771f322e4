"""docs/security.md names the test of each limit, and each of these tests exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_limit_names_tests_that_exist() -> None:
    page = (ROOT / "docs/security.md").read_text()
    table = page[page.index("## Limits") : page.index("## One key and another")]
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 20
    for row in rows:
        last = row.rstrip("| ").rpartition("|")[2]
        named = re.findall(r"`(test_\w+\.py)?::(test_\w+)`", last)
        assert named or "](" in last, f"no test is named: {row}"
        file = ""
        for path, test in named:
            file = path or file
            assert f"def {test}(" in (ROOT / "tests/server" / file).read_text(), f"{file} has no {test}"
