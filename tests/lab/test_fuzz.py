"""The identity fuzz in short: no difference, a planted lossy rule is found, a case is a pure function of its number.

The long run is `python -m lab.fuzz` (docs/proof.md).
"""

import json
import re
from dataclasses import replace
from random import Random
from threading import Event

import numpy as np
import pytest
import torch
from contracts.spec_rows import ROWS

from lab.fuzz import drive, keyed_draw, run
from lab.fuzz.asks import FORMS, Ask, Language, draw_settings
from lab.fuzz.journal import ACCEPTED, Journal, Totals
from lab.fuzz.models import Models
from lab.fuzz.oracle import Oracle, _first_stop
from lab.fuzz.plan import GREEDY, PLAIN, SEEDED, VARIANTS
from lab.fuzz.run import Record, _compare
from lab.fuzz.session import Session
from outdraft import LLM
from outdraft.core.registry import names
from outdraft.core.request import Request
from outdraft.drafters.shared.look_up.lookup_drafter import LookupDrafter
from outdraft.engine.requests.longest import most_rows
from outdraft.options.errors import ConfigError
from outdraft.options.params import SamplingParams
from outdraft.sampling.coins import KeyedCoins
from outdraft.sampling.warp import warp_nodes
from outdraft.testing.subject import Subject

pytest.importorskip("transformers")
LANGUAGE = Language(vocab_size=61, stops=("a", "b", "ab", "cd"), ends=(3,))


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    return Session(folder=tmp_path_factory.mktemp("models"), rows=ROWS)


def small_cases(session: Session, kind: str, count: int) -> list[int]:
    """Of one kind, on tiny models, in this process."""
    cases = (session.case(number) for number in range(400))
    small = [one for one in cases if one.kind == kind and "/" in one.model and not one.kernels and len(one.asks) <= 6]
    return [one.number for one in small[:count]]


@pytest.mark.parametrize(("kind", "count"), [(GREEDY, 4), (SEEDED, 4), (PLAIN, 12)])
def test_every_text_is_the_right_one(session, kind, count):
    records = [session.run(number) for number in small_cases(session, kind, count)]
    assert [record.difference for record in records] == [None] * count
    assert sum(record.texts for record in records) >= 2 * count
    assert sum(record.accepted for record in records) >= count


def test_the_zoo_takes_part(session):
    case = next(one for one in map(session.case, range(400)) if one.model == "zoo" and one.kind == PLAIN)
    small = replace(case, drafter="ngram", asks=case.asks[:2], leavers=(), variant="bf16", shape="batch", again=False)
    record = session._runner.run(small)
    assert record.difference is None and record.texts


def steered_asks(case):
    return [one for one in case.asks if {"guidance_scale", "structured_outputs"} & set(one.settings)]


def test_some_are_guided_and_some_have_a_form_where_plain_decoding_is_asked(session):
    cases = [session.case(number) for number in range(250)]
    assert not any(steered_asks(case) for case in cases if case.kind != PLAIN)
    asks = [one for case in cases if case.kind == PLAIN for one in case.asks]
    for name in ("guidance_scale", "structured_outputs"):
        assert 0.03 < sum(name in one.settings for one in asks) / len(asks) < 0.1, name
    guided = [one for one in asks if "guidance_scale" in one.settings]
    assert {one.negative is None for one in guided} == {True, False}
    for one in asks:
        asked = Request(
            prompt_token_ids=one.prompt, params=SamplingParams(**one.settings), negative_prompt_token_ids=one.negative
        )
        assert most_rows(asked, -(-one.num_held // 16) * 16) >= len(one.prompt) + one.settings["max_tokens"]
    assert all(one.num_held <= 16 * case.pages for case in cases if case.pages is not None for one in case.asks)


def test_guided_texts_and_those_of_a_form_are_the_right_ones(session, monkeypatch):
    """In one batch with others; and a target that forgets the negative prompt is found out."""
    case = next(
        one
        for one in map(session.case, range(400))
        if one.kind == PLAIN
        and "/" in one.model
        and not one.kernels
        and one.variant == "float32"
        and one.shape == "batch"
        and one.asks
    )
    greedy = {"max_tokens": 12, "ignore_eos": True}
    asks = (
        Ask(prompt=(5, 6, 7), settings=greedy),
        Ask(prompt=(5, 6, 7), settings={**greedy, "guidance_scale": 3.0}, negative=(9, 8, 9, 8)),
        *(Ask(prompt=(5, 6, 7), settings={"max_tokens": 12, "structured_outputs": form}) for form in FORMS),
    )
    small = replace(case, asks=asks, leavers=(), again=False, pages=None, policy=None)
    texts = drive.run(session._runner.workshop.plain(small), "batch", asks)
    assert texts[0].token_ids != texts[1].token_ids and not any(text.finish_reason == "error" for text in texts)
    assert all(
        re.fullmatch(form["regex"], text.text)
        for form, text in zip(FORMS, texts[2:], strict=True)
        if "regex" in form and text.finish_reason == "stop"
    )
    assert session._runner.run(small).difference is None
    told, prompt = [], drive._prompt

    def forgets(ask):
        told.append(ask)
        return prompt(ask) if len(told) <= len(asks) else prompt(replace(ask, negative=None))

    monkeypatch.setattr(drive, "_prompt", forgets)
    assert "token_ids differ" in session._runner.run(small).difference["what"]


@pytest.mark.skipif("typical" not in names("verifier"), reason="the rule that is planted is not installed")
def test_a_planted_lossy_rule_is_found_out(session, tmp_path_factory):
    lossy = Session(folder=tmp_path_factory.mktemp("models"), rows=ROWS, plant="typical")
    found = 0
    for number in small_cases(session, SEEDED, 12):
        found += lossy.run(number).difference is not None
        if found == 2:
            return
    raise AssertionError("texts of typical acceptance passed for exact ones")


def test_a_case_is_a_pure_function_of_its_number(session, tmp_path_factory):
    other = Session(folder=tmp_path_factory.mktemp("models"), rows=ROWS)
    assert [session.case(n) for n in (0, 7, 1234)] == [other.case(n) for n in (0, 7, 1234)]
    assert session.case(7).asks != Session(folder=other.folder, rows=ROWS, seed=1).case(7).asks
    assert {session.case(n).variant for n in range(300)} == set(VARIANTS)
    assert {session.case(n).drafter for n in range(600)} == set(session.drafters)


def test_the_second_writing_of_the_keyed_draw_agrees_with_the_engines(tmp_path):
    """Over random rows and settings; and the neighbour of the right token is refused."""
    rng, engine = Random(3), Subject(next(row for row in ROWS if row.drafter == "none"), tmp_path).engine
    verdicts: list[str] = []
    for number in range(150):
        settings = draw_settings(rng, LANGUAGE, seeded=True, edits=0.4, logprobs=False)
        settings.pop("stop", None)
        prompt, output = [rng.randrange(61) for _ in range(6)], [rng.randrange(61) for _ in range(rng.randrange(5))]
        logits = torch.randn(61, generator=torch.Generator().manual_seed(number)) * 3
        seq = engine(eos=frozenset((3,))).add(
            Request(prompt_token_ids=tuple(prompt), params=SamplingParams(**settings))
        )
        for token in output:
            seq.extend(token)
        drawn = KeyedCoins(seq.seed, len(seq.tokens) - 1).draw(warp_nodes(seq, logits[None], [[]])[0], 0)
        given = (logits.double().numpy(), settings, prompt, output, {3})
        verdicts.append(keyed_draw.judge(drawn, *given))
        wrong = [keyed_draw.judge(token, *given) for token in range(61) if token != drawn]
        assert wrong.count(keyed_draw.DIFFERENT) >= 59
    assert verdicts.count("same") >= 148 and "different" not in verdicts


@pytest.mark.parametrize("seeded", [False, True])
def test_the_oracle_refuses_every_kind_of_wrong_text(tmp_path, seeded):
    models = Models(tmp_path)
    directory = models.directory("llama/narrow/1")
    settings = {"max_tokens": 8, "ignore_eos": True} | ({"temperature": 1.0, "seed": 5} if seeded else {})
    ask, oracle = Ask(prompt=(5, 6, 7), settings=settings), Oracle(directory)
    [right] = drive.run(LLM(directory, dtype="float32"), "alone", [ask])
    assert oracle.fault(ask, right) == (None, 0)
    other = (right.token_ids[-1] + 1) % 61
    assert "token 7" in oracle.fault(ask, replace(right, token_ids=(*right.token_ids[:-1], other)))[0]
    assert "ends after" in oracle.fault(ask, replace(right, token_ids=right.token_ids[:-1]))[0]
    assert "ends after" in oracle.fault(ask, replace(right, finish_reason="stop"))[0]
    assert "its text" in oracle.fault(ask, replace(right, text=right.text[1:]))[0]
    stopping = replace(ask, settings={**settings, "stop_token_ids": [right.token_ids[2]]})
    assert "ends after" in oracle.fault(stopping, right)[0]
    if not seeded:
        assert oracle.generate(ask) == list(right.token_ids)


def test_a_tie_is_what_rounding_can_turn_and_no_more():
    row = np.zeros(5)
    row[1], row[2], row[3] = 4.0, 4.0 - 5e-4, 4.0 - 5e-3
    greedy = {"max_tokens": 4}
    assert [keyed_draw.judge(token, row, greedy, [0], [], ()) for token in (1, 2, 3)] == ["same", "tie", "different"]


@pytest.mark.parametrize(
    ("text", "stops", "before", "cut"),
    [
        ("abcd", ("cd", "bc"), 0, 1),
        ("abcd", ("c", "abc"), 0, 0),
        ("ab", ("x",), 0, None),
        ("abab", ("ab",), 2, 2),
        ("abcd", ("bc",), 2, 1),
        ("abcd", ("ab", "bc"), 3, None),
    ],
)
def test_where_a_stop_string_cuts(text, stops, before, cut):
    assert _first_stop(text, stops, before) == cut


def test_what_differs_is_reported(session):
    case = session.case(next(n for n in range(100) if len(session.case(n).asks) == 2 and not session.case(n).leavers))
    text = drive.Text(token_ids=(1, 2), text="ab", finish_reason="length", logprobs=None)
    assert _compare(case, [text, text], [text, text]) is None
    for other in ({"token_ids": (1, 3)}, {"finish_reason": "stop"}, {"text": "a"}, {"whole": False}):
        assert _compare(case, [text, text], [text, replace(text, **other)]) is not None
    left = Ask(prompt=(1,), settings={"max_tokens": 4}, leaves_after=1)
    watched = replace(case, leavers=(left,))
    cut = replace(text, whole=False, token_ids=(1,), text="a")
    assert _compare(watched, [text] * 3, [text, text, cut]) is None
    assert _compare(watched, [text] * 3, [text, text, replace(cut, token_ids=(2,))]) is not None


def test_an_interrupted_run_goes_on(tmp_path):
    path, head = tmp_path / "run.jsonl", {"seed": 0}
    first = Journal(path, head)
    for number in (0, 1):
        first.add(Record(case=number, kind=PLAIN, model="zoo", variant="bf16", drafter="ngram", texts=2))
    with path.open("a") as file:
        file.write('{"case": 2, "kind"')  # the process ended here
    again = Journal(path, head)
    assert sorted(again.records) == [0, 1] and len(path.read_text().splitlines()) == 3
    assert json.loads(path.read_text().splitlines()[0]) == head
    with pytest.raises(ConfigError, match="another run"):
        Journal(path, {"seed": 1})


def test_a_run_that_shows_too_little_fails():
    whole = [
        Record(case=i, kind=kind, model="zoo", variant=variant, drafter="one", texts=1000, accepted=ACCEPTED)
        for i, (kind, variant) in enumerate([(GREEDY, "float32"), (SEEDED, "float32"), *((PLAIN, v) for v in VARIANTS)])
    ]
    whole[0].texts, whole[1].texts = 9000, 3000
    assert not list(Totals.of(whole).missing(["one"]))
    assert list(Totals.of(whole).missing(["one", "two"])) == ["two: 0 accepted tokens, at least 50 are wanted"]
    assert list(Totals.of(whole[:-1]).missing(["one"])) == [f"no text of variant {list(VARIANTS)[-1]!r}"]
    whole[1].texts = 0
    assert "texts of 'seeded'" in next(iter(Totals.of(whole).missing(["one"])))


@pytest.mark.logs_faults
def test_a_drafter_that_raises_is_a_difference(session, monkeypatch):
    monkeypatch.setattr(LookupDrafter, "propose", lambda *_: 1 / 0)
    case = next(one for one in map(session.case, range(800)) if one.drafter == "ngram" and not one.kernels)
    record = session._runner.run(case)
    assert "survived: ZeroDivisionError" in record.difference["what"]


def test_a_hang_in_a_thread_is_reported_and_not_waited_for(session, monkeypatch):
    free, ended = Event(), []
    monkeypatch.setattr(drive, "_until", lambda *_: ended.append(free.wait(20)) or [])
    monkeypatch.setattr(run, "SECONDS", 2.0)
    case = next(
        one for one in map(session.case, range(400)) if one.kind == PLAIN and "/" in one.model and not one.kernels
    )
    even = replace(case.asks[0], prompt=case.asks[0].prompt[:4] * 2)  # such a one streams
    record = session._runner.run(replace(case, asks=(even,), leavers=(), shape="threads"))
    free.set()
    assert record.hung and "no end within" in record.difference["what"] and not ended
