"""Promises for drafts that `train_all.py` brought home, so that `outdraft train check` can judge them.

    python lab/smollm2/promise.py DRAFT --target MODEL --data OUT/data/valid.jsonl [--texts 256] [--specimen-only]

The target writes behind held-out prompts, which takes its time; what the trainer's own passes say of these texts goes
into DRAFT/training.json. The target writes in the type of the record, in which the check that follows runs the engine;
the trainer's passes compute in float32 where the processor has no instructions for that type.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from outdraft.models.files.load import load_model
from outdraft.training.course import prepare
from outdraft.training.plan import make_plan
from outdraft.training.promise import promises
from outdraft.training.record import RECORD, fingerprint, write_record
from outdraft.training.specimens import known_signs
from outdraft.weights.hub import resolve


def main() -> int:
    """Load the draft as one that goes on learning, and promise."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("draft", type=Path)
    parser.add_argument("--target", required=True)
    parser.add_argument("--data", required=True, help="answers that were held out")
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--specimen-only", action="store_true", help="keep the promises; write what finds a fault")
    asked = parser.parse_args()
    record = json.loads((asked.draft / RECORD).read_text(encoding="utf-8"))
    with TemporaryDirectory() as place:
        given = {
            "kind": record["kind"],
            "target": asked.target,
            "init": str(asked.draft),
            "data": [asked.data],
            "valid": [asked.data],
            "depth": record["plan"]["depth"],
            "device": asked.device,
            "out": place,
        }
        course = prepare(make_plan(given), print)
        signs = known_signs(course.learner, course.teacher, asked.draft, course.held_out)
        made = [] if asked.specimen_only else promises(course, texts=asked.texts)
    if asked.specimen_only:
        write_record(asked.draft, {**record, **signs})
        return 0
    target = fingerprint(load_model(resolve(asked.target), record["dtype"]))
    for one in made:
        sys.stdout.write(f"at temperature {one.terms.temperature:g}: {one.tau:.3f} tokens a pass, {one.conditional}\n")
    write_record(asked.draft, {**record, "target": target, "promises": [asdict(one) for one in made], **signs})
    return 0


if __name__ == "__main__":
    sys.exit(main())
