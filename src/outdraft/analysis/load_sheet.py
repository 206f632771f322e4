"""Cells of a load as a table: a line for each number of clients and method."""

from collections.abc import Sequence as Seq

from outdraft.analysis.lines import PLAIN
from outdraft.analysis.load import LoadCell, LoadRecords
from outdraft.analysis.sheet import Sheet
from outdraft.analysis.words import machine_words, model_words, sampling_words

COLUMNS = [
    "clients",
    "method",
    "tokens\n/s",
    "over\nplain",
    "slowest\nround",
    "by\nwork",
    "first\ntoken ms",
    "first\np99 ms",
    "gap\nms",
    "gap\np99 ms",
    "ms/token\nthen",
    "tokens\nper pass",
    "identical",
]
SEATS = 64  # requests that are decoded together unless something else was asked for
FEWEST = 3  # rounds below which a median says little


def load_title(records: LoadRecords, cells: Seq[LoadCell]) -> tuple[str, str, str]:
    """What was measured, how, and where."""
    row = records.rows[0]
    levels = ", ".join(map(str, records.levels))
    num_rounds = min(len(one.seconds) for one in records.rows)
    bounds = {name: value for name, value in row.engine.items() if (name, value) != ("max_num_seqs", SEATS)}
    told = [f"{name}={value}" for name, value in bounds.items()]
    sampling = {**row.sampling, "ignore_eos": False}  # of every load, and said by the lengths
    how = f"{levels} clients at once, each asks anew when its answer is whole; {sampling_words(sampling)}; "
    how += f"{row.sampling['max_tokens']} tokens an answer at most, half at least; median of {num_rounds} interleaved "
    how += f"round{'s' * (num_rounds != 1)}"
    how += f"; {', '.join(told)}" if told else ""
    compared = [cell for cell in cells if cell.method != PLAIN and cell.identical is not None]
    if compared:
        bad = sum(cell.identical is False for cell in compared)
        how += (
            f"; texts of {bad} of {len(compared)} rows DIFFER"
            if bad
            else "; all our texts identical to plain decoding's"
        )
    return f"outdraft bench --load: {model_words(row)}", how, machine_words(records.rows)


def load_sheet(records: LoadRecords, cells: Seq[LoadCell]) -> Sheet:
    """A line for each method at each number of clients, of every column that the page and the terminal show."""
    rows = [
        [
            str(cell.clients),
            cell.method,
            f"{cell.tokens_per_second:.0f}",
            _times(cell.speedup),
            _times(cell.slowest),
            "" if cell.by_work is None else f"{cell.by_work:.2f}x",
            _ms(cell.first_token),
            _ms(cell.first_token_p99),
            _ms(cell.gap),
            _ms(cell.gap_p99),
            _ms(cell.token, 2),
            "?" if cell.tau is None else f"{cell.tau:.2f}",
            _identical(cell),
        ]
        for cell in cells
    ]
    notes = [
        f"{cell.method} with {cell.clients} clients FAILED: {cell.difference}"
        for cell in cells
        if cell.identical is False
    ]
    num_rounds = min(len(row.seconds) for row in records.rows)
    if num_rounds < FEWEST:
        notes.append(f"INCONCLUSIVE: {num_rounds} of at least {FEWEST} rounds (--rounds)")
    notes.append(
        "tokens/s: of all clients together, prompts included; by work: over plain by the processors' seconds; gap: "
        "between two pieces of one answer, each of which may hold several tokens; ms/token then: after the first piece"
    )
    return Sheet(title="\n".join(load_title(records, cells)), columns=COLUMNS, rows=rows, notes=tuple(notes))


def _times(ratio: float | None) -> str:
    return "FAILED" if ratio is None else f"{ratio:.2f}x"


def _ms(seconds: float | None, digits: int = 0) -> str:
    return "" if seconds is None else f"{1000 * seconds:.{digits}f}"


def _identical(cell: LoadCell) -> str:
    if cell.num_agreeing is not None:
        return f"{cell.num_agreeing} of {cell.num_requests}"
    if cell.identical is None:
        return "not promised"
    return "yes" if cell.identical else "NO"
