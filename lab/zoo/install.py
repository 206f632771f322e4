"""Put a new target and the drafts that were trained for it into the zoo, `src/outdraft/zoo`.

    python -m lab.zoo.install family.toml --out OUT/family --source .. --target OUT/target --arm eagle_2m:eagle

`--arm ARM[:NAME]`: an arm of the trial, and the name that it has in the zoo. In their order they go into the wheel
while its models are under 64 MB together; the rest stay where they were trained, and so does an arm that taught its
target. The target's companions.json is written anew: of several arms of a kind the first that fits is what the kind
drafts with. Only configuration and weights are copied, and beside a draft model the target's tokenizer. `--dry-run`
only says what would go where.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.trials.trial import read_trial
from lab.zoo.figures import drafts_of, own_target, weights_bytes
from outdraft.core.registry import find_learner
from outdraft.drafters.shared.heads.joint import TAUGHT
from outdraft.engine.naming.roles import FILE as COMPANIONS

ROOM = 64_000_000
WHEEL = Path("src/outdraft/zoo")
OF_TARGET = ("tokenizer*.json", "generation_config.json")  # a draft model has the same; training does not write them
SHIPPED = ("config.json", "*.safetensors", TAUGHT, *OF_TARGET)


def copy_model(source: Path, place: Path) -> None:
    """Configuration and weights, and nothing of the training."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    copy_files(source, place, SHIPPED)


def copy_files(source: Path, place: Path, patterns: Sequence[str]) -> None:
    """Files of one folder into another."""
    for pattern in patterns:
        for path in source.glob(pattern):
            shutil.copyfile(path, place / path.name)


def main() -> None:
    """Copy, and write who belongs to the target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True, help="the checkout")
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--arm", action="append", default=[])
    parser.add_argument("--dry-run", action="store_true")
    given = parser.parse_args()
    trial, wheel = read_trial(given.file), given.source / WHEEL
    drafts = drafts_of(trial, given.out)
    asked = {arm: name or arm for arm, _, name in (one.partition(":") for one in given.arm)}
    if strange := [arm for arm in asked if arm not in drafts]:
        sys.exit(f"no draft of {', '.join(strange)} is trained in {given.out}; there are: {', '.join(drafts)}")
    replaced = {"target", "__pycache__", *asked.values()}
    stays = [path for path in wheel.iterdir() if path.is_dir() and path.name not in replaced]
    used = weights_bytes(given.target) + sum(map(weights_bytes, stays))
    companions = json.loads((wheel / "target" / COMPANIONS).read_text(encoding="utf-8"))
    for role, named in companions.items():  # what is replaced stays a companion only if its successor fits
        companions[role] = {drafter: place for drafter, place in named.items() if Path(place).name not in replaced}
    given_to = set()
    for arm, name in asked.items():
        source = given.out / drafts[arm].place
        size, kind = weights_bytes(source), trial.arms[arm]["kind"]
        here = own_target(source) is None and used + size < ROOM
        used += size * here
        sys.stdout.write(f"{name}: {size / 1e6:.1f} MB, {'the wheel' if here else f'stays at {source}'}\n")
        role, drafter = (
            ("draft_model", "any") if kind == "draft_model" else ("head", find_learner(kind).drafter or kind)
        )
        if not given.dry_run:
            shutil.rmtree(wheel / name, ignore_errors=True)
        if not here:
            continue
        if (role, drafter) not in given_to:  # the first arm of a kind is its default
            companions.setdefault(role, {})[drafter] = f"../{name}"
            given_to.add((role, drafter))
        if not given.dry_run:
            copy_model(source, wheel / name)
            if role == "draft_model":
                copy_files(given.target, wheel / name, OF_TARGET)
    sys.stdout.write(f"the wheel: {used / 1e6:.1f} MB of weights\n")
    if given.dry_run:
        return
    if given.target.resolve() != (wheel / "target").resolve():
        copy_model(given.target, wheel / "target")
    (wheel / "target" / COMPANIONS).write_text(json.dumps(companions, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
