"""Put a new target and the drafts that were trained for it into the zoo: the wheel's, and the second package.

    python install.py family.toml --out OUT/family --source .. --target OUT/target --arm draft --arm eagle_2m:eagle

`--arm ARM[:NAME]`: an arm of the trial, and the name that it has in the zoo. In their order they go into the wheel
while its models are under 64 MB together, the rest into packages/zoo; the target's companions.json and more.json are
written anew: of several arms of a kind the first is what the kind drafts with. Only configuration and weights are
copied, and beside a draft model the target's tokenizer. An arm that taught its target goes into packages/zoo with it:
`zoo:NAME` and `zoo:NAME_target`, which names it as its companion. `--dry-run` only says what would go where.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from figures import drafts_of, own_target, weights_bytes

from lab.trials.trial import read_trial
from outdraft.core.learner import TARGET
from outdraft.core.registry import find_learner
from outdraft.drafters.shared.heads.joint import TAUGHT
from outdraft.engine.naming.roles import FILE as COMPANIONS

ROOM = 64_000_000
WHEEL, MORE = Path("src/outdraft/zoo"), Path("packages/zoo/outdraft_zoo")
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
    trial, wheel, more = read_trial(given.file), given.source / WHEEL, given.source / MORE
    drafts = drafts_of(trial, given.out)
    asked = {arm: name or arm for arm, _, name in (one.partition(":") for one in given.arm)}
    if strange := [arm for arm in asked if arm not in drafts]:
        sys.exit(f"no draft of {', '.join(strange)} is trained in {given.out}; there are: {', '.join(drafts)}")
    replaced = {"target", "__pycache__", *asked.values()}
    stays = [path for path in wheel.iterdir() if path.is_dir() and path.name not in replaced]
    used = weights_bytes(given.target) + sum(map(weights_bytes, stays))
    companions = json.loads((wheel / "target" / COMPANIONS).read_text(encoding="utf-8"))
    given_to = set()
    for arm, name in asked.items():
        source = given.out / drafts[arm].place
        size, kind = weights_bytes(source), trial.arms[arm]["kind"]
        taught = own_target(source)
        here = taught is None and used + size < ROOM
        used += size * here
        role, drafter = (
            ("draft_model", "any") if kind == "draft_model" else ("head", find_learner(kind).drafter or kind)
        )
        if taught is None and (role, drafter) not in given_to:  # the first arm of a kind is its default
            companions.setdefault(role, {})[drafter] = f"../{name}" if here else f"zoo:{name}"
            given_to.add((role, drafter))
        sys.stdout.write(f"{name}: {size / 1e6:.1f} MB, {'the wheel' if here else 'packages/zoo'}\n")
        if not given.dry_run:
            for home in (wheel, more):
                shutil.rmtree(home / name, ignore_errors=True)
            place = (wheel if here else more) / name
            copy_model(source, place)
            if role == "draft_model":
                copy_files(given.target, place, OF_TARGET)
        if taught is not None:
            its = f"{name}_{TARGET}"
            sys.stdout.write(f"{its}: {weights_bytes(taught) / 1e6:.1f} MB, packages/zoo\n")
            if not given.dry_run:
                copy_model(taught, more / its)
                (more / its / COMPANIONS).write_text(json.dumps({role: {drafter: f"zoo:{name}"}}, indent=2) + "\n")
    sys.stdout.write(f"the wheel: {used / 1e6:.1f} MB of weights\n")
    if given.dry_run:
        return
    if given.target.resolve() != (wheel / TARGET).resolve():
        copy_model(given.target, wheel / TARGET)
    beyond = sorted(path.name for path in more.glob("*/") if path.name != "__pycache__")  # those of before, too
    for path, told in ((wheel / TARGET / COMPANIONS, companions), (wheel / "more.json", beyond)):
        path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
