"""`outdraft train`: train a draft for a target, or check one: does it do in the engine what its trainer promised?"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from outdraft.cli.options import argument, flag, flag_name, given_names
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path

SUMMARY = "train a draft for a target, check one, or let the target write training texts"
EPILOG = """A kind is a drafter that can be trained. `check` loads what was saved into an engine and compares what
it does with what the trainer promised: exit code 1 if a promise is broken, 3 if there are too few rounds to say. A TOML
file (--plan) has the same keys as the flags. Several workers share every batch under
torchrun --nproc-per-node 2 -m outdraft.cli.main train ... Examples:
  outdraft train eagle --target zoo:target --data answers.jsonl --out DIR --tokens 2000000
  outdraft train draft_model --target MODEL --data chats.jsonl --out DIR --dry-run
  outdraft train eagle --target MODEL --data chats.jsonl --out DIR --resume
  outdraft train answers --target MODEL --data chats.jsonl --out answers.jsonl --temperature 1 --temperature 0.7
  outdraft train check DIR --target MODEL
  outdraft train tree DIR --target MODEL --data other.jsonl --nodes 24"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to train, or what to check."""

    kind: str | None = argument(None, "a drafter that can be trained; or: answers; check; tree")
    directory: str | None = argument(None, "check, tree: what was trained")
    target: str | None = flag(None, "the model that it will draft for: a directory, or zoo:NAME")
    data: tuple[str, ...] = flag((), "texts, chats or answers: .jsonl, .parquet, .txt; may be repeated", metavar="FILE")
    valid: tuple[str, ...] = flag((), "held-out texts for evaluation, in place of a share of the data", metavar="FILE")
    out: str | None = flag(
        None,
        "where the draft, its record and its checkpoints go; answers: the .jsonl file, which grows",
        metavar="PATH",
    )
    plan: str | None = flag(None, "a TOML file with the same keys; a flag overrides its key", metavar="FILE")
    init: str | None = flag(None, "a trained draft of this kind to go on from", metavar="DIR")
    tokens: int | None = flag(None, "tokens to learn from; default: once through the data")
    depth: int | None = flag(None, "draft tokens in evaluations and in the promised acceptance rates; default: 4")
    options: Mapping[str, Any] = flag({}, "an option of the kind, e.g. num_steps=7; may be repeated")
    loss: Mapping[str, Any] = flag(
        {}, "a loss and its weight, e.g. total_variation=1; default: the kind's, mostly forward_kl=1"
    )
    on_policy: float | None = flag(None, "the share of batches whose texts the draft itself continues; default: 0")
    reinforce: Mapping[str, Any] = flag({}, "of the loss reinforce: reward=accepted, bleu or rouge; window=4")
    cache_bytes: int | None = flag(
        None, "keep the target's states on disk, up to so many bytes; default: 0, they are computed anew"
    )
    cache_dir: str | None = flag(
        None, "the directory of these states, which several runs may share; default: OUT/run/states", metavar="DIR"
    )
    parallel: str | None = flag(
        None, "what workers share: batches (ddp), or parameters too (fully_shard); default: ddp"
    )
    tensorboard: str | None = flag(
        None, "a directory for TensorBoard's files; the JSON log is always written", metavar="DIR"
    )
    loop: Mapping[str, Any] = flag({}, "a setting of the training loop, e.g. lr=0.001, seq_len=512, patience=5")
    dtype: str | None = flag(
        None,
        "the target's number format: float32, bfloat16; default: as it is stored, but training computes in float32 "
        "where the CPU has no instructions for bfloat16",
    )
    device: str | None = flag(None, "cpu, cuda, cuda:1, ..., or auto: CUDA where there is one; default: cpu")
    seed: int | None = flag(None, "seed of the initial weights and of the order of the data; default: 0")
    temperature: tuple[float, ...] = flag((), "answers: of the texts; several are used in turn; default: 1")
    max_tokens: int = flag(256, "answers: the most tokens of each text")
    prompt_tokens: int = flag(32, "answers: for a text without a prompt, take this many of its first tokens")
    nodes: int = flag(63, "tree: draft nodes of the tree that is chosen from measured accuracies")
    resume: bool = flag(False, "go on from the checkpoint in OUT/run")
    dry_run: bool = flag(False, "write the untrained draft, and report how long training would take")
    json: bool = flag(False, "machine output: the record, or the checks")


TAKES = {  # what the actions read of the options, beside the kind itself
    "check": {"directory", "target", "dtype", "device", "json"},
    "answers": set("target data out dtype device seed temperature max_tokens prompt_tokens json".split()),
    "tree": {"directory", "target", "data", "nodes", "json"},
}
_NOT_A_KINDS = {"max_tokens", "prompt_tokens", "nodes"}


def _require_meant(options: Options) -> None:
    """Raise `ConfigError` for a flag that what was asked for does not read."""
    known = {one.name for one in fields(options)} - {"kind"}
    takes = TAKES.get(options.kind or "", known - _NOT_A_KINDS)
    for name in sorted({*given_names(options)} & (known - takes)):
        said = repr(options.directory) if name == "directory" else f"--{flag_name(name)}"
        raise ConfigError(f"train {options.kind} does not take {said}: leave it out (outdraft train --help)")


def run(options: Options) -> int:
    """Train a draft, let the target write answers, or check a draft."""
    if options.kind is None:
        raise ConfigError("train needs a kind, or check: outdraft train KIND --target DIR --data FILE --out DIR")
    _require_meant(options)
    others = {"check": _check, "answers": _answers, "tree": _tree}
    return others.get(options.kind, _train)(options)


def _train(options: Options) -> int:
    from outdraft.cli.console import make_console, say, taps_line, write_json
    from outdraft.training.course import prepare
    from outdraft.training.plan import PLAN_FIELDS, make_plan, merged, read_plan
    from outdraft.training.team import join_team
    from outdraft.training.train import dry_run, train

    if options.directory is not None:
        raise ConfigError(f"{options.directory}: a kind takes no second word; did you mean --target or --out?")
    if options.temperature:
        raise ConfigError("--temperature is for answers; drafts are judged at the plan's temperature, 1 by default")
    flags = {name: getattr(options, name) for name in PLAN_FIELDS if hasattr(options, name) and name != "temperature"}
    given = merged(read_plan(options.plan) if options.plan is not None else {}, flags)
    plan = make_plan(given)
    console = make_console(stderr=True)
    with join_team(plan.device) as team:

        def tell(line: str) -> None:
            if team.leads:
                say(console, line)

        course = prepare(plan, tell, team)
        told, loop = course.accounts, course.loop.config
        tell(
            f"{told.read} examples: {told.kept} to learn from ({told.tokens} tokens), {told.held_out} held out, "
            f"{told.skipped} skipped; {loop.extent}"
        )
        if course.learner.taps:
            tell(taps_line(course.learner.taps))
        report = dry_run(course) if options.dry_run else train(course, resume=options.resume, tell=tell)
        if not team.leads:
            return 0
    if options.json:
        write_json(report)
    elif options.dry_run:
        lasts = f"for {loop.seconds:g} seconds at most" if loop.seconds else f"{report['hours']:.2f} hours"
        tell(
            f"{plan.out}: {report['bytes'] / 1e6:.1f} MB untrained; {report['seconds_a_step']:.2f} s a step, "
            f"{report['steps']} steps, {lasts}"
        )
        for name, shape in report["tensors"].items():
            tell(f"  {name}  {shape}")
    elif report:
        for one in report["promises"]:
            how = "greedy" if not one["terms"]["temperature"] else f"at temperature {one['terms']['temperature']:g}"
            by_depth = " ".join(f"{rate:.2f}" for rate in one["conditional"])
            tell(f"promised {how}: {one['tau']:.2f} tokens a pass; accepted at 1, 2, ...: {by_depth}")
        if report["speedup"] is not None:
            tell(f"predicted on this machine: {report['speedup']:.2f} times plain decoding")
        if report["promises"]:
            tell(f"next: outdraft train check {plan.out} --target {course.verifier}")
    return 0


def _answers(options: Options) -> int:
    from outdraft.cli.console import make_console, say, write_json
    from outdraft.engine.llm import LLM
    from outdraft.models.files.load import load_model
    from outdraft.training.answers import Asking, prompts_of, write_answers
    from outdraft.training.examples import find_files
    from outdraft.training.record import fingerprint
    from outdraft.weights.hub import resolve

    if options.target is None or options.out is None or not options.data:
        raise ConfigError(
            "answers needs who writes, the prompts, and a file: outdraft train answers --target MODEL --data FILE "
            "--out answers.jsonl"
        )
    asking = Asking(
        temperatures=options.temperature or (1.0,),
        max_tokens=options.max_tokens,
        prompt_tokens=options.prompt_tokens,
        seed=options.seed or 0,
    )
    out, files = user_path(options.out), find_files(options.data)
    if out in files:
        raise ConfigError(f"--out {out} is among the prompts: name another file")
    source = resolve(options.target)
    writer = fingerprint(load_model(source, options.dtype))["weights"]
    llm = LLM(options.target, drafter="none", dtype=options.dtype or "auto", device=options.device or "cpu")
    console = make_console(stderr=True)
    with console.status("writing") as status:
        told = write_answers(
            llm, prompts_of(files, llm.tokenizer, asking.prompt_tokens), asking, out, status.update, target=writer
        )
    if options.json:
        write_json(asdict(told))
    else:
        say(
            console,
            f"{out}: {told.read} prompts: {told.done} answers of {told.tokens} tokens, {told.failed} failed, "
            f"{told.skipped} without a prompt",
        )
    return 0


def _check(options: Options) -> int:
    from outdraft.cli.console import make_console, say, write_json
    from outdraft.training.check import check_directory, compare_specimen

    if options.directory is None or options.target is None:
        raise ConfigError("check needs what was trained and its target: outdraft train check DIR --target MODEL")
    console = make_console(stderr=options.json)
    device = options.device or "cpu"
    with console.status("reading the specimen"):
        shown = compare_specimen(Path(options.directory), options.target, dtype=options.dtype, device=device)
    wrong = [one for one in shown if one.evidence.is_alarm]
    for fault in wrong:
        say(console, f"BROKEN  {fault.sentence}")
    if wrong:
        if options.json:
            write_json([asdict(fault) for fault in wrong])
        return 1
    with console.status("drafting"):
        found = check_directory(Path(options.directory), options.target, dtype=options.dtype, device=options.device)
    if options.json:
        write_json([one.told() for one in found])
    else:
        for one in found:
            say(console, one.line)
    outcomes = {one.outcome for one in found}
    return 1 if "broken" in outcomes else 3 if "too few rounds" in outcomes else 0


def _tree(options: Options) -> int:
    from outdraft.cli.console import make_console, say, write_json
    from outdraft.training.tree import measure_tree

    if options.directory is None or options.target is None:
        raise ConfigError(
            "tree needs what was trained, its target and texts: outdraft train tree DIR --target MODEL --data FILE"
        )
    console = make_console(stderr=options.json)
    with console.status("measuring"):
        found = measure_tree(Path(options.directory), options.target, options.data, nodes=options.nodes)
    told = found.template
    if options.json:
        shape = {"paths": list(map(list, told.paths)), "accuracies": list(map(list, told.accuracies))}
        write_json({"path": str(found.path), "expected": found.expected, "guesses": found.guesses, **shape})
        return 0
    for head, row in enumerate(told.accuracies, 1):
        ranks = " ".join(f"{rate:.3f}" for rate in row)
        say(console, f"{head} ahead, ranks 1, 2, ...: {ranks}")
    say(
        console,
        f"{found.path}: {len(told.paths)} nodes, {max(map(len, told.paths))} deep; {found.expected:.2f} tokens a pass "
        f"if heads were right independently ({found.guesses} guesses); drafts with --drafter-options tree={found.path}",
    )
    return 0
