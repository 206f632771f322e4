"""Where a text ends: inside an accepted run, at a stop, at a limit, at the end of the context."""

from collections.abc import Sequence as Seq
from dataclasses import replace

from outdraft.control.fixed import FixedOptions, FixedPolicy
from outdraft.core.request import Request
from outdraft.testing.audit import require
from outdraft.testing.contract.ground import GREEDY, PROMPTS, agrees
from outdraft.testing.subject import Outcome, Subject, collect, run


def ends_inside_a_run(subject: Subject, *, turns: Seq[int] = range(5)) -> None:
    """End of text, stop ids, stop strings and limits cut inside an accepted run, exactly where plain decoding ends.

    `turns`: each takes every end and every place once, together with others; all five turns take every pair of them.
    """
    ask = Request(prompt_token_ids=PROMPTS[2], params=GREEDY)
    plain = subject.oracle(ask)
    for turn in turns:
        for kind, check in enumerate(_ENDS):
            check(subject, ask, plain, _PLACES[(kind + turn) % len(_PLACES)])


def _end_of_text(subject: Subject, ask: Request, plain: list[int], at: int) -> None:
    outcome = run(subject.engine(eos=frozenset({plain[at]}), depth=6), [ask])[0]
    agrees(subject, outcome, plain[: plain.index(plain[at]) + 1], "end of text")
    require(outcome.seq.finish_reason == "stop", f"end of text gives {outcome.seq.finish_reason!r}")


def _ignored_end_of_text(subject: Subject, ask: Request, plain: list[int], at: int) -> None:
    ask = replace(ask, params=replace(GREEDY, ignore_eos=True))
    agrees(subject, run(subject.engine(eos=frozenset({plain[at]}), depth=6), [ask])[0], plain, "ignore_eos")


def _stop_id(subject: Subject, ask: Request, plain: list[int], at: int) -> None:
    ask = replace(ask, params=replace(GREEDY, stop_token_ids=(plain[at],)))
    agrees(subject, run(subject.engine(depth=6), [ask])[0], plain[: plain.index(plain[at]) + 1], "stop id")


def _limit(subject: Subject, ask: Request, plain: list[int], at: int) -> None:
    outcome = run(subject.engine(depth=6), [replace(ask, params=replace(GREEDY, max_tokens=at))])[0]
    agrees(subject, outcome, plain[:at], "max_tokens")
    require(outcome.seq.finish_reason == "length", f"max_tokens gives {outcome.seq.finish_reason!r}")


def _stop_string(subject: Subject, ask: Request, plain: list[int], at: int) -> None:
    agrees(subject, _with_stop_string(subject, ask, plain[at - 1 : at + 1]), _upto(plain, at), "stop string")


_ENDS = (_end_of_text, _ignored_end_of_text, _stop_id, _limit, _stop_string)
_PLACES = (1, 2, 3, 5, 8)


def _with_stop_string(subject: Subject, request: Request, wanted: list[int]) -> Outcome:
    """Stop as a text codec would: when the tokens so far end with the wanted ones."""
    engine = subject.engine(depth=6)
    written: list[int] = []

    def find_stop(token: int) -> bool:
        written.append(token)
        return written[-len(wanted) :] == wanted

    seq = engine.add(request, find_stop)
    outcome = Outcome(seq=seq)
    while engine.has_work:
        collect(engine, {seq.id: outcome})
    return outcome


def _upto(plain: list[int], at: int) -> list[int]:
    wanted = plain[at - 1 : at + 1]
    end = next(i for i in range(1, len(plain)) if plain[i - 1 : i + 1] == wanted)
    return plain[: end + 1]


def context_end(subject: Subject) -> None:
    """A text may fill the context to its last position, and a draft never reaches beyond."""
    for max_len in (len(PROMPTS[3]) + 1, len(PROMPTS[3]) + 5, len(PROMPTS[3]) + 12):
        request = Request(prompt_token_ids=PROMPTS[3], params=replace(GREEDY, max_tokens=100))
        policy = FixedPolicy(FixedOptions(num_speculative_tokens=5))
        outcome = run(subject.engine(max_len=max_len, policy=policy), [request])[0]
        agrees(subject, outcome, subject.oracle(request, max_len=max_len), f"context of {max_len}")
        require(outcome.seq.finish_reason == "length", f"a full context gives {outcome.seq.finish_reason!r}")
