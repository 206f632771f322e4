"""A seeded sample of damaged files: `python -m outdraft.testing.mutated_files` tries 2,000 of them."""

import json
import struct
from pathlib import Path
from random import Random

from outdraft.testing.mutated_files.mutate import damage_bytes, damage_json
from outdraft.testing.mutated_files.stage import damage_safetensors
from outdraft.testing.sweep.run import sweep


def test_damaged_files_are_read_or_refused():
    numbers = sorted(Random(12).sample(range(2000), 150))
    verdicts = list(sweep("outdraft.testing.mutated_files.cases", iter(numbers)))
    bad = [f"{one.end}: {one.name}: {one.said}" for one in verdicts if not one.is_good]
    assert not bad, "\n".join(bad)
    refused = [one.name.partition(":")[0] for one in verdicts if one.end == "refused"]
    kinds = {"gguf", "packed", "llama", "int4", "store", "recipe.toml"}
    assert {Path(name).parts[0] for name in refused} >= kinds, "damage must be damage"


def test_damage_changes_the_file():
    document = json.dumps({"a": [1, {"b": "c"}], "d": 2}).encode()
    file = struct.pack("<Q", len(document)) + document + bytes(range(64))
    for damage, data in ((damage_bytes, file), (damage_json, document), (damage_safetensors, file)):
        made = [damage(data, Random(n))[1] for n in range(60)]
        assert sum(one == data for one in made) < 10 and len(set(made)) > 35, damage
