"""The rules of docs/architecture.md that a machine can check: one file of tests over the source itself."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from outdraft.core.registry import KINDS, find, names

ROOT = Path(__file__).parents[1]
SOURCE = sorted((ROOT / "src").rglob("*.py"))
LAB = sorted((ROOT / "lab").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MAX_LINES = 400

# Reading a tensor on the host waits for the device. Each file on the path of a step that does so, and why it may.
HOST_READS = {
    "options/types.py": "a number that a caller gave as a tensor, before any work",
    "codecs/grammar/constraint.py": "a few ids of a mask, which a library makes on the CPU",
    "codecs/grammar/forced_text.py": "the bytes that a mask's tokens begin with, likewise",
    "core/draft.py": "a draft's structure, once a draft: rules walk over plain numbers",
    "core/draft_tree.py": "a draft and what became of it, for a request that asked to see it",
    "control/batch_budget.py": "the confidences of a draft, when the policy asked for them",
    "decode/about_guess.py": "the roles of a draft's nodes",
    "sampling/doubt.py": "how sure a decision is, where rows depend on the pass",
    "sampling/draw.py": "the tokens drawn",
    "sampling/logprobs.py": "log probabilities that the request asked for",
    "nn/packed.py": "sizes of documents, once a row of training",
    "nn/segment.py": "a draft's own mask, once a pass",
    "verify/shared/case.py": "from which rows guesses were drawn, once a draft",
    "verify/shared/per_draft.py": "on a GPU the one read of a greedy round: drafted and best tokens, whether finite",
    "models/networks/native.py": "the positions of a pass on a CPU, for the kernels",
    "models/files/gguf_families.py": "rotary factors that a file keeps as tensors, once a load",
    "engine/runner.py": "the ids and positions of a pass on a CPU, for the kernels",
    "engine/graphed.py": "a pass's tokens and positions where they are on the host already",
    "nn/attention/rows.py": "a draft's own mask, on the host",
    "adapt/observe.py": "what the target gave to examined guesses, read together, once a round",
    "verify/block.py": "one number a node, read together",
    "verify/shared/in_turn.py": "one number a node, read together",
    "verify/shared/relaxed.py": "one number a guess, read together",
    "verify/shared/chain.py": "one number a node, read together",
    "drafters/shared/chains/grow.py": "what a judge of hidden states says, once a step",
    "drafters/shared/choose.py": "the tokens drafted, one or the best few of a row",
    "drafters/lookahead.py": "the tokens of the window",
    "drafters/jacobi.py": "the tokens of the window",
    "drafters/cascade.py": "what a level would have written, a review at a time",
    "drafters/merge.py": "the structure of a guess, once a round",
    "drafters/on_the_fly_skip.py": "a number a layer, once a prompt",
    "drafters/swift.py": "the best tokens of a trial, where the kernels do not find them",
    "drafters/ctc/__init__.py": "the likeliest tokens of each slot, once a round",
    "drafters/ssd.py": "the likeliest tokens of a bent distribution",
}
ELSEWHERE = ("testing/", "training/", "finetune/", "cli/", "bench/gpu/")  # not on the path of a step


def relative(path: Path) -> str:
    return path.relative_to(ROOT / "src/outdraft").as_posix()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def test_files_are_the_size_of_a_thought():
    paths = [*SOURCE, *LAB, *TESTS]
    assert len(paths) > 1000
    long = [f"{path}: {lines} lines" for path in paths if (lines := len(path.read_text().splitlines())) > MAX_LINES]
    assert not long, "\n".join(long)


def test_docstrings():
    bare = [f"{path}: {name}" for path in SOURCE for name in without_docstring(parsed(path))]
    assert not bare, "these do not say what they are:\n" + "\n".join(bare)


def without_docstring(tree: ast.Module) -> list[str]:
    """The module, or its public names, where they have no docstring."""
    return ["the module"] * (not ast.get_docstring(tree)) + [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
        and not any("overload" in ast.unparse(d) for d in node.decorator_list)
    ]


def test_no_print_no_star_no_bare_except():
    found = [f"{path}:{said}" for path in SOURCE for said in unwelcome(parsed(path))]
    assert not found, "\n".join(found)


def unwelcome(tree: ast.Module) -> Iterator[str]:
    """What no file does: the line and the fault."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield f"{node.lineno} prints; raise, return or use the CLI's console"
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            yield f"{node.lineno} imports *"
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield f"{node.lineno} catches everything"
        if isinstance(node, ast.Global):
            yield f"{node.lineno} has a global"


def test_the_look_out_works():
    tree = ast.parse(
        "from a import *\n\ndef f():\n    global x\n    try:\n        print(1)\n    except: pass\nclass _A: pass"
    )
    assert without_docstring(tree) == ["the module", "f"]
    assert [said.split()[:2] for said in unwelcome(tree)] == [
        ["1", "imports"],
        ["4", "has"],
        ["7", "catches"],
        ["6", "prints;"],
    ]


def test_host_reads_only_where_listed():
    readers = {relative(path) for path in SOURCE if reads_on_host(parsed(path))}
    readers = {reader for reader in readers if not reader.startswith(ELSEWHERE)}
    assert readers <= set(HOST_READS), "list the file in HOST_READS with a reason, or keep the tensor on the device"
    # A method that was taken out takes its line's meaning with it.
    listed = {path for path in HOST_READS if (ROOT / "src/outdraft" / path).exists()}
    assert listed <= readers, "HOST_READS names files that no longer read on the host"


def reads_on_host(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("item", "tolist")
        for node in ast.walk(tree)
    )


def test_core_is_standard_library_and_torch():
    allowed = {*sys.stdlib_module_names, "torch"}
    for path in (*(ROOT / "src/outdraft/core").glob("*.py"), *(ROOT / "src/outdraft/options").glob("*.py")):
        for node in ast.walk(parsed(path)):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for module in modules:
                assert module.split(".")[0] in allowed or module.startswith(("outdraft.core", "outdraft.options")), (
                    f"{path}: {module}"
                )


def test_import_does_not_load_torch():
    code = "import sys, outdraft; print([m for m in ('torch', 'numpy', 'tokenizers', 'rich') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("kind", KINDS)
def test_catalogue_equals_files(kind: str):
    assert names(kind), f"no {kind} found"
    for name in names(kind):
        method = find(kind, name)
        assert (method.name, method.kind) == (name, kind), f"{KINDS[kind]}.{name} registers {method.kind} {method.name}"
        assert method.summary


def test_every_method_has_its_page():
    pages = {path.stem for path in (ROOT / "docs/methods").glob("*.md")}
    for kind in KINDS:
        missing = set(names(kind)) - pages
        assert not missing, f"{kind}s without docs/methods/<name>.md: {sorted(missing)}"
    stray = pages - {name for kind in KINDS for name in names(kind)}
    assert not stray, f"pages of methods that do not exist: {sorted(stray)}"


def test_what_a_page_calls_measured_is_in_the_measurements():
    measurements = (ROOT / "docs/performance.md").read_text()
    for path in (ROOT / "docs/methods").glob("*.md"):
        if re.search(r"\bMeasured\b", path.read_text()):
            assert re.search(rf"\b{path.stem}\b", measurements), f"{path.stem} is called measured and is not"


def test_every_drafter_has_its_row():
    from contracts.spec_rows import ROWS

    assert {row.drafter for row in ROWS} == set(names("drafter"))


def test_nothing_names_a_machine():
    places = re.compile(r"(?<![\w.\-])/(?:work|root|home/\w+)/")
    hosts = re.compile("|".join(["pypi" + r"\.org", "python" + r"hosted\.org", "download\\.py" + r"torch\.org"]))
    for path in tracked():
        text = path.read_text(errors="ignore")
        for pattern in (places, hosts):
            found = pattern.search(text)
            assert not found, f"{path.relative_to(ROOT)} names {found.group()}"


def tracked() -> list[Path]:
    """Text files under version control; outside a repository, those that a clone would have."""
    kinds = {".py", ".md", ".toml", ".txt", ".cfg", ".yml", ".yaml", ".sh", "", ".importlinter"}
    try:
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        paths = [ROOT / line for line in listed.splitlines()]
    except (OSError, subprocess.CalledProcessError):
        tops = ("src", "tests", "docs", "recipes", "examples")
        paths = [path for top in tops for path in (ROOT / top).rglob("*")] + list(ROOT.glob("*.*"))
    return [path for path in paths if path.is_file() and path.suffix in kinds and path != Path(__file__)]
