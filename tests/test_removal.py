"""One method, one home: five of them are taken out, each from a copy of the tree, and the rest stays green."""

from pathlib import Path

import pytest
from removal import check, copy_tree, remove

OTHERS = ("lookahead", "gated", "multi_draft")
LEARNED = ("eagle", "ctc")  # drafters that are trained: a folder each


@pytest.mark.slow
@pytest.mark.parametrize("name", [*OTHERS, *LEARNED])
def test_a_method_is_gone_without_a_trace(name: str, tmp_path: Path):
    tree = copy_tree(tmp_path / "tree")
    gone = remove(tree, name)
    assert f"docs/methods/{name}.md" in gone
    assert not check(tree)


def test_what_is_removed(tmp_path: Path):
    for path in (
        "src/outdraft/drafters/some.py",
        "docs/methods/some.md",
        "tests/contracts/rows/some.py",
        "tests/drafters/test_some.py",
        "tests/drafters/test_some_files.py",
        "tests/drafters/test_some1.py",
        "tests/drafters/test_other.py",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    recipes = tmp_path / "src/outdraft/recipes"
    recipes.mkdir()
    (recipes / "paper.toml").write_text('[drafter]\nname = "some"\n')
    (recipes / "else.toml").write_text('[drafter]\nname = "something"\n')
    assert len(remove(tmp_path, "some")) == 6
    assert all((tmp_path / f"tests/drafters/test_{name}.py").exists() for name in ("other", "some1"))
    assert (recipes / "else.toml").exists()
    with pytest.raises(ValueError, match="'some'"):
        remove(tmp_path, "some")
