"""README.zh.md is README.md in Chinese: the same code, measured table and links; each page names the other."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENGLISH, CHINESE = ((ROOT / name).read_text() for name in ("README.md", "README.zh.md"))
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
TABLE = re.compile(r"<!-- real:begin -->.*?<!-- real:end -->", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def test_code_and_table_are_the_same():
    assert FENCED.findall(CHINESE) == FENCED.findall(ENGLISH) and len(FENCED.findall(ENGLISH)) == 4
    assert TABLE.findall(CHINESE) == TABLE.findall(ENGLISH) and len(TABLE.findall(ENGLISH)) == 1


def test_they_link_to_the_same_files_and_to_each_other():
    """Sections of the page itself have other anchors; where links lead is tests/test_pages.py's."""
    links, others = (sorted(link for link in LINK.findall(text) if link[0] != "#") for text in (CHINESE, ENGLISH))
    assert [link for link in links if link != "README.md"] == [link for link in others if link != "README.zh.md"]
    assert "(README.zh.md)" in ENGLISH[:200] and "(README.md)" in CHINESE[:200]


def test_they_have_the_same_sections():
    depths = [re.findall(r"^#+(?= )", FENCED.sub("", text), re.MULTILINE) for text in (ENGLISH, CHINESE)]
    assert depths[0] == depths[1] and len(depths[0]) > 5
