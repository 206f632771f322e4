"""Streams of requests on which a draft that keeps learning is tried, with SmolLM2's own answers at temperature 0.7.

    python -m lab.smollm2.streams DATA forms.jsonl --stream forms --count 300 [--model smollm2]
    outdraft adapt forms.jsonl --target smollm2

    moves    chats, then code, then arithmetic, then chats again, as many of each
    rfcs     questions about passages of the Rust RFCs
    forms    product forms that are much alike, as one tenant sends them
    letters  one letter of a shop, filled in for each customer

The shipped head learned from other questions of the first kinds, from passages of the RFCs too, and from no form or
letter. An interrupted run goes on. Data out: lines {"prompt_token_ids", "token_ids", "domain"} in the order of service.
"""

import argparse
import json
import random
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from lab.smollm2.prompts import ON_PASSAGES, ON_SUBJECTS, code, grams_of, gsm8k, lines, test_texts
from outdraft import LLM, SamplingParams
from outdraft.weights.known import usual_model

SEED = 77
_BATCH = 20  # answers between two writings of the file
GOODS = (
    "kettle lamp desk chair bicycle tent rucksack keyboard monitor toaster blanket umbrella guitar camera watch".split()
)
MAKES = "Alder Birch Cedar Dover Elm Fjord Grove Harbour Iris Juniper Kestrel Larch Maple Nordic Otter".split()
COLOURS = "red blue green black white grey orange silver".split()
FORM = (
    "Fill in this form and write nothing else.\n\nItem: {make} {good}, {colour}\nPrice: {price} dollars\n\n"
    "Title:\nShort description (two sentences):\nWho it is for:\nThree features:\nCare instructions:\nReturns policy:"
)
SUBJECTS = (
    "rain bread trains music sleep maps gardens rivers bridges coffee dogs winter chess clouds salt mirrors".split()
)


def chats(rng: random.Random) -> Iterator[str]:
    """Everyday questions."""
    while True:
        yield rng.choice(ON_SUBJECTS).format(" and ".join(rng.sample(SUBJECTS, 2)))


def forms(rng: random.Random) -> Iterator[str]:
    """One tenant's."""
    while True:
        named = {"make": rng.choice(MAKES), "good": rng.choice(GOODS), "colour": rng.choice(COLOURS)}
        yield FORM.format(**named, price=rng.randint(9, 400))


LETTER = (
    "Write the reply to this customer. Copy the letter below, fill in the name and the item, and write nothing else."
    "\n\nDear NAME,\n\nThank you for writing to Larkspur and Finch. We are sorry that your ITEM {trouble}. "
    "Please send it back to our workshop in Bristol within thirty days, in its box, with this letter on top. "
    "We will mend it or send you another one, and we pay for the postage both ways. You need not do anything else."
    "\n\nWith kind regards,\nThe Larkspur and Finch workshop\n\nCustomer: {name}\nItem: {make} {good}, {colour}"
)
TROUBLES = ("does not work", "arrived broken", "came too late", "has a scratch", "is not the one that you ordered")
NAMES = "Ada Ben Clara David Emma Frank Grace Henry Ivy Jack Kate Leo Mia Noah Olive Paul Rose Sam Tess Will".split()
FAMILIES = (
    "Abbott Barker Cole Dalton Ellis Foster Grant Hughes Irwin Jensen Keller Lowe Marsh Norton Parker Reed".split()
)


def letters(rng: random.Random) -> Iterator[str]:
    """A shop's, which answers with one letter."""
    while True:
        named = {"make": rng.choice(MAKES), "good": rng.choice(GOODS), "colour": rng.choice(COLOURS)}
        name = f"{rng.choice(NAMES)} {rng.choice(FAMILIES)}"
        yield LETTER.format(**named, name=name, trouble=rng.choice(TROUBLES))


def rfcs(data: Path, rng: random.Random) -> Iterator[str]:
    """Instructions over passages of 60 to 160 words."""
    texts = [str(record["text"]) for record in lines(data / "corpus-rust-rfcs/rust-rfcs.jsonl.gz")]
    while True:
        words = rng.choice(texts).split()
        start = rng.randrange(max(1, len(words) - 160))
        yield rng.choice(ON_PASSAGES).format(" ".join(words[start : start + rng.randint(60, 160)]))


def prompts(data: Path, stream: str, count: int) -> list[tuple[str, str]]:
    """Domain and question, in the order of service; none shares 13 words with a benchmark."""
    rng, measured = random.Random(SEED), grams_of(test_texts(data))

    def some(domain: str, source: Iterator[str], number: int) -> list[tuple[str, str]]:
        clean = (one for one in source if len(one) < 1500 and not grams_of([one]) & measured)
        return [(domain, one) for one in islice(clean, number)]

    if stream == "forms":
        return some("forms", forms(rng), count)
    if stream == "letters":
        return some("letters", letters(rng), count)
    if stream == "rfcs":
        return some("rfcs", rfcs(data, rng), count)
    talk, questions = chats(rng), list(gsm8k(data))
    rng.shuffle(questions)
    parts = [("chat", talk), ("code", code(rng)), ("arithmetic", iter(questions)), ("chat", talk)]
    return [one for domain, source in parts for one in some(domain, source, count // 4)]


def main() -> int:
    """Ask, and write the answers down."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--stream", choices=("moves", "rfcs", "forms", "letters"), required=True)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--model", default=usual_model("smollm2")[0])
    asked = parser.parse_args()
    todo = prompts(asked.data, asked.stream, asked.count)
    done = len(asked.out.read_text(encoding="utf-8").splitlines()) if asked.out.exists() else 0
    llm = LLM(asked.model, max_num_seqs=_BATCH)
    for start in range(done, len(todo), _BATCH):
        batch = todo[start : start + _BATCH]
        settings = [SamplingParams(temperature=0.7, max_tokens=256, seed=start + i) for i in range(len(batch))]
        found = llm.chat([[{"role": "user", "content": question}] for _, question in batch], settings)
        with asked.out.open("a", encoding="utf-8") as out:
            for (domain, _), one in zip(batch, found, strict=True):
                ids = {"prompt_token_ids": list(one.prompt_token_ids), "token_ids": list(one.token_ids)}
                out.write(json.dumps({**ids, "domain": domain}) + "\n")
        sys.stdout.write(f"{start + len(batch)} of {len(todo)}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
