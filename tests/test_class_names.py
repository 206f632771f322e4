"""A class name has one owner: what the packages below define, no other file of the source defines again."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src/outdraft"
PACKAGES = ("adapt", "control", "drafters", "learn", "models", "training", "verify")
SEVERAL = {"Block", "Pieces"}  # of a network, of a cache and of a file; of a file, and of a peer that runs alone


def test_a_class_name_has_one_owner() -> None:
    owners = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                owners[node.name].append(path.relative_to(SOURCE))
    repeated = {name: where for name, where in owners.items() if len(where) > 1 and name not in SEVERAL}
    ours = {name: where for name, where in repeated.items() if any(path.parts[0] in PACKAGES for path in where)}
    assert not ours, "\n".join(f"{name}: {', '.join(map(str, where))}" for name, where in sorted(ours.items()))
    assert len(owners) > 500
