"""Cells to tables: what each method gained on each suite, and where its time went."""

from collections.abc import Sequence as Seq

from outdraft.analysis.bootstrap import Interval
from outdraft.analysis.lines import PLAIN
from outdraft.analysis.records import PassCurve
from outdraft.analysis.sheet import Sheet
from outdraft.analysis.summary import ALL, Cell

WIDEST = 6  # groups that fit beside each other
FEWEST = 3  # prompts, and rounds, below which a bootstrapped range means nothing
BARS = " ▁▂▃▄▅▆▇█"


def speed_sheet(cells: Seq[Cell], title: str) -> Sheet:
    """A row for each method; many groups get a row for each method and group instead."""
    groups = [group for group in dict.fromkeys(cell.group for cell in cells) if group != ALL]
    wide = len(groups) <= WIDEST
    beside = groups if wide and len(groups) > 1 else []
    shown = [cell for cell in cells if cell.group == ALL or not wide]
    by_name = {(cell.method, cell.group): cell for cell in cells}
    rows = []
    for cell in shown:
        name = cell.method if wide else f"{cell.method}, {cell.group}"
        on_each = [_speed(by_name.get((cell.method, group))) for group in beside]
        rows.append(
            [
                name,
                "?" if cell.tau is None else f"{cell.tau:.2f}",
                _speed(cell),
                _range(cell.speedup),
                *on_each,
                f"{cell.tokens_per_second:.0f}",
                _identical(cell),
            ]
        )
    head = ["method", "tokens\nper pass", "speed-up", "95 %", *(f"on\n{group}" for group in beside), "tokens\n/s"]
    notes = (*_failures(shown), *_undecided([cell for cell in shown if cell.group == ALL]))
    return Sheet(title=title, columns=[*head, "identical"], rows=rows, notes=notes)


def time_sheet(cells: Seq[Cell], *, bars: bool = True) -> Sheet:
    """Over all groups: where the time went, the first token, memory, acceptance by position."""
    shown = [cell for cell in cells if cell.group == ALL]
    device = any("device" in cell.peak_bytes for cell in shown)
    columns = ["method", "draft", "target", "rest", "first\ntoken", "ms/token\nthen", "peak\nmemory"]
    columns += ["on the\nGPU"] * device + ["accepted", "by position"]
    rows = []
    for cell in shown:
        told = cell.num_agreeing is None  # other programs do not say where their time went
        row = [cell.method, *(f"{cell.split[part]:.0%}" if told else "" for part in ("draft", "target", "rest"))]
        then = "" if cell.later_token_seconds is None else f"{1000 * cell.later_token_seconds:.2f}"
        row += [f"{1000 * cell.first_token_seconds:.1f} ms", then, _bytes(cell.peak_bytes.get("host"))]
        row += [_bytes(cell.peak_bytes.get("device"))] * device
        drafted = bool(cell.acceptance_by_position)
        row += [f"{cell.acceptance_rate:.2f}" if drafted else "", _positions(cell.acceptance_by_position, bars)]
        rows.append(row)
    peers = any(cell.num_agreeing is not None for cell in shown)
    note = "peak memory is the whole process's, with every method's weights loaded"
    note += "; a peer's is its own process's" * peers
    return Sheet(title="Where the time went", columns=columns, rows=rows, notes=(note,))


def curve_sheet(curve: PassCurve) -> Sheet:
    """What a target pass costs by its rows, and how near one row is to the time of reading the weights."""
    first = curve.seconds[0]
    rows = [
        [
            str(count),
            f"{1000 * seconds:.2f}",
            f"{seconds / first:.2f}",
            f"{count * curve.flops / seconds / curve.peak_flops:.2f}",
        ]
        for count, seconds in zip(curve.rows, curve.seconds, strict=True)
    ]
    num_bytes = curve.weight_bytes + curve.kv_bytes * curve.past
    share = num_bytes / curve.bandwidth / first
    note = (
        f"{curve.past} tokens cached; one row runs at {share:.2f} of the memory limit: "
        f"{_bytes(num_bytes)} of weights, keys and values at the {curve.bandwidth / 1e9:.1f} GB/s that reading gave"
    )
    if share > 1.1:
        note += "; more than 1, because the weights stay in the processor's caches, or others disturbed the reading"
    peak = f"the peak: {curve.peak_flops / 1e9:.0f} billion operations a second, as this machine was measured"
    columns = ["rows", "ms", "over\none row", "of the\npeak"]
    return Sheet(title="What a pass costs", columns=columns, rows=rows, notes=(note, peak))


def _speed(cell: Cell | None) -> str:
    if cell is None:
        return ""
    return "FAILED" if cell.speedup is None else f"{cell.speedup.value:.2f}x"


def _range(interval: Interval | None) -> str:
    return "" if interval is None else f"{interval.low:.2f}-{interval.high:.2f}"


def _identical(cell: Cell) -> str:
    if cell.num_agreeing is not None:
        told = f"{cell.num_agreeing} of {cell.num_prompts}"
        return told if cell.shortest_agreement is None else f"{told}, else from {cell.shortest_agreement}"
    if not cell.lossless:
        return "LOSSY"
    if not cell.num_compared:
        return "not promised"
    return "yes" if not cell.num_failed else f"NO, {cell.num_failed} of {cell.num_compared}"


def _failures(cells: Seq[Cell]) -> tuple[str, ...]:
    return tuple(f"{cell.method} FAILED: {cell.first_failure}" for cell in cells if cell.failed and cell.group == ALL)


def _undecided(cells: Seq[Cell]) -> list[str]:
    """Which speed-ups decide nothing: a range of too few texts, or one that contains plain decoding's own speed."""
    compared = [cell for cell in cells if cell.method != PLAIN and cell.speedup is not None]
    few = [cell for cell in compared if min(cell.num_prompts, cell.num_rounds) < FEWEST]
    if few:
        sizes = (few[0].num_prompts, "prompt"), (few[0].num_rounds, "round")
        prompts, rounds = (f"{n} {word}{'s' * (n != 1)}" for n, word in sizes)
        return [
            f"INCONCLUSIVE: {prompts} and {rounds} are too few for a 95 % range; take at least {FEWEST} prompts and "
            f"{FEWEST} rounds (--prompts, --rounds)"
        ]
    names = [cell.method for cell in compared if cell.speedup and not cell.speedup.excludes(1.0)]
    if not names:
        return []
    return [
        f"INCONCLUSIVE: {', '.join(names)}: the 95 % range contains 1.00x, so these figures do not say whether it is "
        "faster than plain decoding; more prompts and rounds narrow the range"
    ]


def _positions(rates: Seq[float], bars: bool) -> str:
    if bars:
        return "".join(BARS[round(rate * (len(BARS) - 1))] for rate in rates[:16])
    return " ".join(f"{rate:.2f}" for rate in rates[:16])


def _bytes(count: int | None) -> str:
    return "?" if count is None else f"{count / 2**20:.0f} MB"
