"""`outdraft audit`: prove that speculation changes nothing, on your model, with your settings, on your machine.

The proof itself is `outdraft.testing.losslessness`; here it is planned and printed.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from outdraft.bench.lineup import ZOO_TARGET
from outdraft.cli.flags import ROLES, ChoiceFlags, EngineFlags, TextFlags
from outdraft.cli.options import flag, same
from outdraft.options.errors import ConfigError, OutdraftError

if TYPE_CHECKING:
    from outdraft.engine.llm import LLM
    from outdraft.testing.losslessness import Auditor, Check, Setting

SUMMARY = "prove that the output is the target's own: identical text, equal distribution"
EPILOG = """exit code 1 if a check fails, or has too little to tell (INCONCLUSIVE). Examples:
  outdraft audit --model smollm2 --quick           # the default drafter, in under a minute on two cores
  outdraft audit --drafter draft_model --temperature 0.8
  outdraft audit --all --prompts 200 --tokens 128
  outdraft audit --drafter ngram --plant-bias      # a lossy rule on purpose: the audit must fail"""
Tell = Callable[[str], object]
EACH_ARM = "outdraft.testing.each_arm:METHOD"
NOTHING = (
    "nothing to prove: drafter 'none' is plain decoding; name one with --drafter or --speculative-config, or take --all"
)
QUICK_PROMPTS, QUICK_TOKENS, QUICK_RECOMPUTED = 12, 32, 8
QUICK_SECONDS, QUICK_EFFORTS = 30.0, (3, 16)  # a whole quick audit; texts of its sampled check by that of a prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to prove, and how hard to look."""

    engine: EngineFlags = field(metadata={"title": "engine"})
    sampling: ChoiceFlags = field(
        metadata={"title": "sampling (temperature 0 here means: greedy, and 0.8 for the sampled checks)"}
    )
    negative_prompt: str | None = same(TextFlags, "negative_prompt")
    prompts: int = flag(50, "prompts of the identity checks")
    tokens: int = flag(128, "tokens written for each of them")
    samples: int | None = flag(
        None, "texts of the distribution check, for each prompt, plain and speculative: 400, or 100 with --all"
    )
    quick: bool = flag(
        False,
        "greedy and seeded texts of 12 prompts, then as many sampled ones as half a minute holds; the smallest "
        "bias that they would show is said",
    )
    all: bool = flag(False, "every drafter, chain and tree, with six ways to sample")
    plant_bias: bool = flag(False, "use a lossy rule instead of the verifier: the audit must then fail")
    json: bool = flag(False, "machine output: passed, checks [name, passed, detail, conclusive]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """One drafter in one shape."""

    label: str
    words: dict[str, Any]  # over what the engine's flags say


def run(options: Options) -> int:
    """Print check after check, then the verdict."""
    from rich.markup import escape
    from rich.padding import Padding

    from outdraft.cli.console import make_console, write_json

    samples = options.samples if options.samples is not None else 100 if options.all else 400
    if options.prompts < 1 or samples < 20 or options.tokens < 2:
        raise ConfigError("an audit needs --prompts of at least 1, --tokens of at least 2, --samples of at least 20")
    given = [name for name in (*ROLES, "speculative_config") if getattr(options.engine, name)]
    if options.all and given:
        raise ConfigError(f"--all audits every drafter as it is: leave out --{given[0].replace('_', '-')}")
    if options.all and options.quick:
        raise ConfigError("--quick audits one drafter: leave out --all")
    if not options.all and options.engine.drafter == "none":
        raise ConfigError(NOTHING)
    console = make_console(stderr=options.json)
    checks = []
    with console.status("loading") as status:

        def progress(told: str) -> None:
            status.update(escape(told))

        for check in run_checks(options, samples, progress, partial(console.print, markup=False)):
            checks.append(check)
            console.print(f"{_mark(check)}  [bold]{escape(check.name)}[/]")
            console.print(Padding(escape(check.detail), (0, 0, 0, 6)))
    failed = [check for check in checks if not check.passed]
    passed = bool(checks) and not failed
    if options.json:
        write_json({"passed": passed, "checks": [asdict(check) for check in checks]})
    console.print()
    if passed:
        console.print(f"[green]LOSSLESS[/]: {len(checks)} of {len(checks)} checks passed")
    elif not checks:
        console.print("[bold red]NOT PROVEN[/]: no drafter can draft for this model")
    elif wrong := [check for check in failed if check.conclusive]:
        console.print(
            f"[bold red]NOT PROVEN[/]: {len(wrong)} of {len(checks)} checks failed; first: {escape(wrong[0].name)}"
        )
    else:
        console.print(
            f"[bold yellow]INCONCLUSIVE[/]: {len(failed)} of {len(checks)} checks could not tell, and none failed; "
            f"first: {escape(failed[0].name)}. Take more --prompts, --tokens or --samples"
        )
    return 0 if passed else 1


def _mark(check: "Check") -> str:
    if check.passed:
        return "[green]pass[/]"
    return "[bold red]FAIL[/]" if check.conclusive else "[bold yellow]INCONCLUSIVE[/]"


def run_checks(options: Options, samples: int, progress: Tell, notice: Tell) -> "Iterator[Check]":
    """Every check of this audit, as it is done."""
    from outdraft.testing.losslessness import FAULTS, PLANTED, Auditor
    from outdraft.testing.prompts import distribution_prompts, identity_prompts

    plain = options.engine.load_plain()
    suspects, settings = list_suspects(options, plain), list_settings(options)
    vocab_size, context = plain.engine.parts.target.vocab_size, plain.engine.parts.target.max_len
    tokens = min(options.tokens, QUICK_TOKENS if options.quick else options.tokens, context // 2)
    count = min(options.prompts, QUICK_PROMPTS) if options.quick else options.prompts
    auditor = Auditor(
        plain=plain,
        prompts=identity_prompts(plain.tokenizer, count, vocab_size=vocab_size, max_len=min(64, context // 4)),
        distribution_prompts=distribution_prompts(plain.tokenizer, vocab_size=vocab_size),
        negative=None if options.negative_prompt is None else plain.encode(options.negative_prompt),
        max_tokens=tokens,
        samples=samples,
        num_distributions=(1 if options.quick else 2 * len(suspects)) * sum(not setting.greedy for setting in settings),
        recomputed=QUICK_RECOMPUTED if options.quick else None,
    )
    is_told = False
    for suspect in suspects:
        words = _always_drafting(options, suspect.words)
        try:
            spec = options.engine.speculate(plain, **(_judged_by(PLANTED, words) if options.plant_bias else words))
            faults = {} if options.quick else FAULTS
            faulty = {name: options.engine.speculate(plain, **_judged_by(rule, words)) for name, rule in faults.items()}
        except OutdraftError as error:
            if not options.all or options.engine.model == ZOO_TARGET:
                raise
            notice(f"skip  {suspect.label}: {error}")  # its weights belong to another target
            continue
        if not spec.lossless and not options.plant_bias:
            raise ConfigError(
                f"verifier {spec.config['verifier']['name']!r} is lossy with these options and says so, so there is "
                "nothing to prove: take 'auto', or see docs/verification.md for the values at which a rule is exact"
            )
        effort = 0  # unknown until a lossy rule was caught
        if not is_told:
            told, effort = _forecast(auditor, spec, settings, len(suspects), quick=options.quick)
            notice(told)
            is_told = True
        yield from _checks_of(auditor, suspect, spec, faulty, settings, progress, effort)


def _forecast(
    auditor: "Auditor", spec: "LLM", settings: "list[Setting]", num_suspects: int, *, quick: bool
) -> tuple[str, int]:
    """How long it takes at the pace of a short trial, and what is done; of a quick one also the effort that fits."""
    from outdraft.bench.forecast import how_long

    pace = auditor.pace(spec, settings[-1])
    seconds = num_suspects * sum(auditor.seconds(pace, setting, quick=quick) for setting in settings)
    count, tokens = len(auditor.prompts), auditor.max_tokens
    pieces, effort = f"{count} prompts x {tokens} tokens, greedy and seeded, plain and speculative", 0
    if quick:
        one = count * tokens * pace.drafted
        least, most = QUICK_EFFORTS
        effort = max(least, min(most, 1 + int((QUICK_SECONDS - seconds) / one)))
        seconds += (effort - 1) * one
        return f"{how_long(seconds, seconds * pace.share)}: {pieces}, and {effort * count} sampled texts", effort
    of_each = f"for each of {num_suspects} drafters and shapes, " * (num_suspects > 1)
    pieces += (
        f"; {len(auditor.distribution_prompts)} x {auditor.samples} short texts; {3 * count} or more sampled texts"
    )
    return (
        f"{how_long(seconds, seconds * pace.share)}, longer where a planted fault shows late: {of_each}{pieces}",
        effort,
    )


def _always_drafting(options: Options, words: dict[str, Any]) -> dict[str, Any]:
    """Guesses are what is audited, whether they pay or not; unless a policy is asked for."""
    engine = options.engine
    if engine.speculative_config:
        return {**words, "speculative_config": {"policy": "fixed", **engine.speculative_config}}
    if engine.policy or "policy" in words or (_is_recipe(engine) and not options.all):
        return words
    return {**words, "policy": {**engine.policy_options, "name": "fixed"}}


def _is_recipe(engine: EngineFlags) -> bool:
    from outdraft.engine.naming.recipe import names_recipe

    return engine.drafter is not None and names_recipe(engine.drafter)


def _judged_by(rule: str, words: dict[str, Any]) -> dict[str, Any]:
    """The words with this rule, which stands in a `speculative_config` itself where there is one."""
    if config := words.get("speculative_config"):
        return {**words, "speculative_config": {**config, "rejection_sample_method": rule}, "verifier": None}
    return {**words, "verifier": rule}


def _checks_of(
    auditor: "Auditor",
    suspect: Suspect,
    spec: "LLM",
    faulty: "dict[str, LLM]",
    settings: "list[Setting]",
    progress: Tell,
    effort: int,
) -> "Iterator[Check]":
    """`effort`: of the sampled texts; 0: unknown until a lossy rule was caught, and short samples are compared too."""
    quick = effort > 0
    for setting in settings:
        where = f"{suspect.label}, {setting.name}"
        progress(f"{where}: identity")
        yield _named(auditor.identity(spec, setting), where)
        if setting.greedy:
            continue
        if not quick:
            progress(f"{where}: distribution")
            yield _named(auditor.distribution(spec, setting), where)
        if not effort:
            progress(f"{where}: power")
            shown, effort = auditor.power(faulty, setting)
            yield _named(shown, where)
        progress(f"{where}: token distribution")
        yield _named(auditor.tokens(spec, setting, effort=effort), where)


def list_suspects(options: Options, plain: "LLM") -> list[Suspect]:
    """The drafter that was named, or the default; with --all every one, in each of its shapes."""
    from outdraft.core.registry import find, names

    engine = options.engine
    if not options.all and not (engine.drafter or engine.draft_model or engine.speculative_config):
        return [_default(engine, plain)]
    if not options.all:
        return [Suspect(label=_name_of(engine), words={})]
    suspects = []
    for name in names("drafter"):
        method = find("drafter", name)
        if name == "none" or not method.lossless:
            continue
        for form, shaped in (method.forms or {method.shape_of(method.options()): {}}).items():
            words = {"drafter": {"name": name, **shaped}}
            suspects.append(Suspect(label=f"{name} {form}", words=words))
    return suspects


def _default(engine: EngineFlags, plain: "LLM") -> Suspect:
    """What drafts where nothing is named: each of its drafters in turn, since its policy asks those alone that pay."""
    drafter = dict(replace(engine, verifier=None, verifier_options={}).speculate(plain).config["drafter"])
    if drafter["name"] == "none":
        raise ConfigError(NOTHING.replace("drafter 'none'", "the default here"))
    arms = drafter.pop("arms", {})
    words = {"drafter": drafter, "head": None, "datastore": None}
    words |= {} if engine.policy else {"policy": {**engine.policy_options, "name": EACH_ARM}}
    return Suspect(label=f"default ({', '.join(arms)})", words=words)


def _name_of(engine: EngineFlags) -> str:
    if engine.speculative_config:
        return str(engine.speculative_config.get("method", "speculative_config"))
    return f"recipe {engine.drafter}" if _is_recipe(engine) else engine.drafter or "draft_model"


def list_settings(options: Options) -> "list[Setting]":
    """Greedy and the sampling that was asked for; with --all the six of the catalogue."""
    from outdraft.testing.losslessness import SETTINGS, Setting

    if options.all:
        return list(SETTINGS)
    asked = asdict(options.sampling.params())
    for name in ("max_tokens", "seed", "logprobs", "prompt_logprobs", "n", "structured_outputs"):  # the audit's own
        del asked[name]
    sampled = asked | {"temperature": asked["temperature"] or 0.8}
    usual = asdict(ChoiceFlags().params())
    given = {name: value for name, value in sampled.items() if value != usual[name]}
    label = ", ".join(f"{name} {value}" for name, value in given.items())
    return [Setting(name="greedy", sampling=asked | {"temperature": 0.0}), Setting(name=label, sampling=sampled)]


def _named(check: "Check", where: str) -> "Check":
    return replace(check, name=f"{where}: {check.name}")
