"""The written parts of the pages of methods: `python -m lab.method_pages` writes them; a test says if they are current.

    docs/methods/NAME.md    behind the first paragraph a block: commands and Python that run as they are on the zoo's
                            models, and what a drafter gains on a real model (src/outdraft/bench/measured.json)
    docs/methods.md         the table of all methods
    docs/survey.md          the systems of a survey (lab/survey.py)

What a command says follows from what a drafter needs; `method_pages.toml` has the rest.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lab import survey
from lab.smollm2.equal_table import HERE as EQUAL
from lab.smollm2.equal_table import read
from lab.smollm2.measure_methods import SETS
from outdraft import zoo
from outdraft.bench.measured import gains, in_words, read_measured
from outdraft.core.learner_registry import learner_names
from outdraft.core.registry import KINDS, find, names
from outdraft.engine.naming.needs import needs_of

ROOT = Path(__file__).parents[1]
PAGES, TABLE = ROOT / "docs/methods", ROOT / "docs/methods.md"
START, END = "<!-- written by `python -m lab.method_pages` -->\n", "<!-- /written -->\n"
TITLES = {"drafter": "Drafters", "verifier": "Acceptance rules", "policy": "Policies"}
SAID: Mapping[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
PROMPT = "It was late when"
LONGEST = 120


def block(name: str) -> str:
    """What is written on the page of this name: the lines that run, and the measured row."""
    return f"{START}\n{lines(name)}{END}"


def lines(name: str) -> str:
    """The same without its marks."""
    kind = next(kind for kind in ("verifier", "policy", "drafter") if name in names(kind))  # `auto` is the first two
    use = _use(kind, name)
    flags, words, before = use.get("flags", ""), use.get("words", ""), use.get("before", [])
    if kind == "drafter":
        flags = f"--drafter {name} {flags}".strip()
        words = words if "drafter=" in words else ", ".join(filter(None, (f'drafter="{name}"', words)))
    command = f'outdraft generate "{PROMPT}" --model zoo:target {flags} --stats'
    asked = use.get("prompt", f'"{PROMPT}"')
    params = use.get("params", "SamplingParams(temperature=0.8, seed=1)" if kind == "verifier" else "")
    taken = "LLM, SamplingParams" if params else "LLM"
    call = f"llm.generate({', '.join(filter(None, (asked, params)))})"
    made = ["```bash", *before, command, "```", ""]
    load = f'llm = LLM("zoo:target", {words})'
    if len(load) > LONGEST:  # as the formatter breaks it
        load = f'llm = LLM(\n    "zoo:target", {words}\n)'
    if max(map(len, load.split("\n"))) > LONGEST:
        load = "\n".join(["llm = LLM(", '    "zoo:target",', *(f"    {word}," for word in _arguments(words)), ")"])
    made += ["```python", f"from outdraft import {taken}", "", load]
    made += [f"print({call}.text)", "```", ""]
    return "\n".join([*made, *_after(kind, name), ""])


def _arguments(words: str) -> list[str]:
    """Each argument of a call, as it is written."""
    call = ast.parse(f"f({words})", mode="eval").body
    assert isinstance(call, ast.Call)
    return [ast.get_source_segment(f"f({words})", one) or "" for one in call.keywords]


def _use(kind: str, name: str) -> dict[str, Any]:
    """What is said of a method: of its own, else of what it needs, else by the rule for rules and policies."""
    found: dict[str, Any] = {}
    if kind == "drafter":
        for need in sorted(needs_of(name)):
            found |= SAID["need"][need]
        if "head" in needs_of(name) and (zoo.path("target").parent / name).is_dir():
            found |= {"before": [], "flags": f"--head zoo:{name}", "words": f'head="zoo:{name}"'}
    else:
        flags = f"--drafter draft_model --draft-model zoo:draft --{kind} {name}"
        found["flags"] = flags + " --temperature 0.8" * (kind == "verifier")
        found["words"] = f'draft_model="zoo:draft", drafter="draft_model", {kind}="{name}"'
    found |= SAID.get(kind, {}).get(name, {})
    filled = {key: value.replace("{name}", name) for key, value in found.items() if isinstance(value, str)}
    return found | filled | {"before": [line.replace("{name}", name) for line in found.get("before", [])]}


def _after(kind: str, name: str) -> Iterator[str]:
    """Where a head comes from, and what a drafter gains."""
    measured = read_measured()["target"]
    if kind == "drafter" and name in learner_names() and "head" in needs_of(name):
        made = f"`outdraft train {name} --target MODEL --data answers.jsonl --out DIR`"
        yield f"For a model of yours {made} makes the head ([training](../training.md))."
    if name == "none":
        return
    if rows := gains(name):
        taus = ", ".join(f"{row['tau']:.2f} on {suite}" for suite, row in rows.items())
        yield f"On a real model, {measured}, times plain decoding: {in_words(rows)}; tokens a pass: {taus}."
        yield from _equal(name)
    elif kind == "drafter" or name == "auto":
        yield from _equal(name) or ["On a real model: not measured yet."]


def _equal(name: str) -> list[str]:
    """What a head of this kind came to on equal data, if it was trained."""
    if not (path := EQUAL / f"{name}.engine.json").exists():
        return []
    shapes = read(path)["tau"]
    taus = (
        " / ".join(f"{shapes[shape]['0'][one][0]:.2f}" for shape in ("chain", "tree") if shape in shapes)
        for one in SETS
    )
    sets = (f"{made} on {one}" for made, one in zip(taus, SETS, strict=True))
    gained = {}
    for width, record in (("4 bits", path), ("bfloat16", EQUAL / f"{name}.bf16.json")):
        if record.exists():
            gained[width] = ", ".join(f"{read(record)['speedup'][one]:.2f}x" for one in SETS)
    return [
        "SmolLM2 with a head that learned from a million tokens ([all kinds](../training.md#kinds-on-equal-data)), "
        f"greedy: {', '.join(sets)} tokens a pass{' (chain / tree)' * ('tree' in shapes)}; times plain decoding, by "
        f"the default policy: {'; '.join(f'{times} in {width}' for width, times in gained.items())}."
    ]


def page(name: str, text: str) -> str:
    """The page with its block current; a page without one gets it behind its first paragraph."""
    if START in text:
        return text[: text.index(START)] + block(name) + text[text.index(END) + len(END) :]
    opening = re.match(r"# .*\n+(?:(?!#|```|\|).+\n)*", text)
    assert opening, f"docs/methods/{name}.md has no title"
    return f"{opening[0].rstrip()}\n\n{block(name)}\n{text[opening.end() :].lstrip()}".rstrip() + "\n"


def table(text: str) -> str:
    """docs/methods.md with its table current."""
    head = text[: text.index(START)] if START in text else f"{text.rstrip()}\n\n"
    return head + START + "".join(_tables()) + END


def _tables() -> Iterator[str]:
    for kind in KINDS:
        drafts = kind == "drafter"
        columns = ("name", "what it does", *("needs", f"on {read_measured()['target']}") * drafts, "paper")
        yield f"\n## {TITLES[kind]}\n\n"
        if drafts:
            yield _measured_by()
        yield f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}\n"
        for name in names(kind):
            method = find(kind, name)
            link = f"[{name}](methods/{name}.md)" if (PAGES / f"{name}.md").exists() else name
            cells = [link, method.summary + ("" if method.lossless else " (lossy)")]
            if drafts:
                cells += [", ".join(sorted(needs_of(name))).replace("_", " "), in_words(gains(name))]
            cells.append(f"[{method.paper.year}]({method.paper.link})" if method.paper else "")
            yield f"| {' | '.join(cells)} |\n".replace("|  |", "| |").replace("|  |", "| |")
    yield "\n"


def _measured_by() -> str:
    """What the column of gains holds."""
    told = read_measured()
    return (
        f"The column *on {told['target']}* has seconds of plain decoding over seconds with the drafter, the best set "
        f"of prompts first: {told['machine']}, {told['made']}, one round of eight chats a set "
        "(`lab/smollm2/measure_methods.py`). [Performance](performance.md) has other runs, whose figures differ by "
        "some hundredths to a tenth.\n\n"
    )


def current() -> Iterator[tuple[Path, str]]:
    """Every file that is written here, and its text."""
    for path in sorted(PAGES.glob("*.md")):
        yield path, page(path.stem, path.read_text(encoding="utf-8"))
    yield TABLE, table(TABLE.read_text(encoding="utf-8"))
    yield survey.PAGE, survey.page()


def main() -> int:
    """Write all pages, the table and the survey."""
    for path, text in current():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
