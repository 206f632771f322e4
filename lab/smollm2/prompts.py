"""Prompts for SmolLM2's own answers, from which its drafts learn: `prompts.py DATA prompts.jsonl`.

    gsm8k     the questions of GSM8K's training half but its last 473, which measure
    passage   an instruction over a passage of a book, a PEP, an RFC or the Rust book
    code      a task over a function of Python's standard library, by its signature and docstring
    own       no text: the target writes the user's turn itself (`answers.py`)
    begun     the beginning of a user's turn, which the target goes on with (`openings.py`; for `batch_answers.py`)

MT-Bench, HumanEval and Spec-Bench only measure: a prompt that shares 13 words in a row with one of theirs is left out.
DATA holds the corpora's folders. Data out: JSON lines {"kind", "messages"}, in an order that a seed decides: any
beginning of the file is a mixture.
"""

import argparse
import ast
import gzip
import json
import random
import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lab.smollm2.openings import openings

HELD_OUT = 473  # the last questions of GSM8K's training half
GRAM = 13  # words in a row that must not be shared
BOOKS = ("corpus-books/books_core.jsonl.gz", "corpus-books/books_more.jsonl.gz")
TEXTS = ("corpus-peps/peps.jsonl.gz", "corpus-rust-rfcs/rust-rfcs.jsonl.gz", "corpus-rust-book/rust-book.jsonl.gz")
ON_PASSAGES = (
    "Summarize this passage in a few sentences.\n\n{}",
    "What is the main idea of the following text?\n\n{}",
    "Rewrite the passage below in simpler words.\n\n{}",
    "Write three questions that a teacher could ask about this text, and answer them.\n\n{}",
    "Continue this text in the same style.\n\n{}",
    "{}\n\nList the most important facts of the text above.",
    "Explain the following to somebody who has never heard of it:\n\n{}",
    "Read this and tell me who or what it is about, and why it matters.\n\n{}",
    "Turn this passage into a short dialogue between two people.\n\n{}",
    "Extract the names, places and dates from this text as a list.\n\n{}",
)
ON_SUBJECTS = (
    "Explain what {} means, with an example.",
    "Write a short paragraph about {}.",
    "Give me five tips about {}.",
    "What are the advantages and disadvantages of {}?",
    "Write a polite email that asks a colleague about {}.",
    "Compose a short poem about {}.",
    "How would you teach a beginner about {}? Write a plan of steps.",
)
ON_FUNCTIONS = (
    "Write a Python function `{signature}` that does the following: {purpose}",
    "Complete this Python function.\n\n```python\n{head}\n```",
    "{head}\n",
    "Explain step by step what this Python code does.\n\n```python\n{source}\n```",
    "Write unit tests for this Python function.\n\n```python\n{source}\n```",
    "Find possible bugs in this Python function and suggest improvements.\n\n```python\n{source}\n```",
)


def main() -> int:
    """Write the prompts and say how many of each kind were left out."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--each", type=int, default=16000, help="prompts of a kind, at most")
    parser.add_argument("--begun", type=int, default=0, help="beginnings of a user's turn")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    measured = grams_of(test_texts(asked.data))
    rng = random.Random(asked.seed)
    sources = {"gsm8k": gsm8k(asked.data), "passage": passages(asked.data, rng), "code": code(rng)}
    records, counts = [], {}
    for kind, prompts in sources.items():
        kept = dropped = 0
        for prompt in prompts:
            if kept == asked.each:
                break
            if grams_of([prompt]) & measured:
                dropped += 1
                continue
            kept += 1
            records.append({"kind": kind, "messages": [{"role": "user", "content": prompt}]})
        counts[kind] = {"kept": kept, "shared 13 words": dropped}
    records += [{"kind": "own", "messages": []} for _ in range(asked.each)]
    some = openings(rng)
    records += [{"kind": "begun", "messages": [], "begin": next(some)} for _ in range(asked.begun)]
    rng.shuffle(records)
    asked.out.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    sys.stdout.write(json.dumps(counts | {"own": asked.each}) + "\n")
    return 0


def grams_of(texts: list[str]) -> set[tuple[str, ...]]:
    """Every run of 13 words, in lower case and without punctuation."""
    found = set()
    for text in texts:
        words = re.findall(r"\w+", text.lower())
        found |= {tuple(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1)}
    return found


def test_texts(data: Path) -> list[str]:
    """All that the benchmarks show a model, and GSM8K's held-out questions."""
    texts = []
    for name in ("mt-bench/question.jsonl", "spec-bench/question.jsonl"):
        for record in lines(data / name):
            texts += [str(turn) for turn in record["turns"]]
    for record in lines(data / "humaneval/HumanEval.jsonl.gz"):
        texts.append(str(record["prompt"]))
    return texts + [str(record["question"]) for record in list(lines(data / "gsm8k/train.jsonl"))[-HELD_OUT:]]


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def gsm8k(data: Path) -> Iterator[str]:
    for record in list(lines(data / "gsm8k/train.jsonl"))[:-HELD_OUT]:
        yield str(record["question"])


def passages(data: Path, rng: random.Random) -> Iterator[str]:
    """Passages of 40 to 180 words under an instruction; every sixth prompt asks about a few words of one alone."""
    texts = [str(record["text"]) for name in (*BOOKS[:1], *TEXTS) for record in lines(data / name)]
    while True:
        text = rng.choice(texts)
        start, words = rng.randrange(max(1, len(text) - 2000)), rng.randint(40, 180)
        piece = text[text.find(" ", start) + 1 :][:1500].split()[:words]
        passage = " ".join(piece)
        if len(piece) < 30 or not passage.isprintable():
            continue
        if rng.random() < 1 / 6:
            named = re.findall(r"\b[a-z]{4,}(?: [a-z]{4,}){1,2}\b", passage)
            if named:
                yield rng.choice(ON_SUBJECTS).format(rng.choice(named))
            continue
        yield rng.choice(ON_PASSAGES).format(passage)


def code(rng: random.Random) -> Iterator[str]:
    """Functions with a docstring of Python's standard library, in an order that the seed decides."""
    library = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(path for path in library.rglob("*.py") if not {"test", "tests", "site-packages"} & set(path.parts))
    rng.shuffle(files)
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text)
        except (UnicodeDecodeError, SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef) or not (purpose := ast.get_docstring(node)):
                continue
            source = ast.get_source_segment(text, node) or ""
            if not 60 < len(source) < 1500:
                continue
            signature = f"{node.name}({ast.unparse(node.args)})"
            head = f'def {signature}:\n    """{purpose[:400]}"""'
            for shape in rng.sample(ON_FUNCTIONS, 2):
                yield shape.format(signature=signature, purpose=purpose[:400], head=head, source=source)


if __name__ == "__main__":
    sys.exit(main())
