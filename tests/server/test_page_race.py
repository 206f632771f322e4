"""The race of the page: two requests, one after the other, each with its own clock, and one sentence about both."""

import json
import re

import httpx
import pytest
from headless import Page

from outdraft import LLM, SamplingParams
from tests.server.on_page import ANSWER, ENDED, NUM_TOKENS, PROMPT, chat, count, load, send

FIGURES = "[...document.querySelectorAll('.pane')].map(figuresOf)".replace(
    "figuresOf", "(pane) => [...pane.querySelectorAll('dd')].map((one) => Number(one.textContent))"
)
TEXTS = "[...document.querySelectorAll('.pane .words')].map((one) => one.textContent)"
SLOW = [(100, "a"), *[(100, "b")] * 3]
QUICK = [(0, "a"), (0, "b"), (0, "b"), (0, "b")]


def test_both_write_the_same_and_their_passes_are_counted(page: Page, llm: LLM, address: str) -> None:
    send(page, PROMPT, "#race")
    text = llm.generate(PROMPT, SamplingParams(max_tokens=NUM_TOKENS)).text
    assert page.ask(TEXTS) == [text, text]
    (mine, plain) = page.ask(FIGURES)
    assert plain[2:] == [NUM_TOKENS, NUM_TOKENS] and mine[3] == NUM_TOKENS
    assert page.text("#tau") == f"{NUM_TOKENS / mine[2]:.2f}", "the engine counts as many passes"
    for seconds, rate, _, num in (mine, plain):
        assert num / rate == pytest.approx(seconds, abs=0.006), "seconds are shown with two decimals"
    assert re.fullmatch(
        r"Speculative (was \d+\.\d\d× as quick|was as quick as plain|took \d+\.\d\d× as long), the same text\.",
        page.text(".sentence"),
    )
    closing = page.text(".sentence")
    page.click(".unrace")
    assert count(page, ".race") == 0 and page.text(".note").startswith(closing)
    load(page, address)
    assert page.text(".note").startswith(closing) and page.problems == []
    assert page.ask(f"document.querySelector('{ANSWER}').textContent") == text


def test_the_requests_differ_in_nothing_else_and_follow_each_other(page: Page) -> None:
    page.fill("#method", "off")
    page.fill("#temperature", "1")
    chat(page, SLOW, SLOW)
    send(page, "Hello", "#race")
    (mine, plain) = page.ask("asked")
    assert plain["begin"] >= mine["end"], "one alone on the wire"
    assert mine.pop("cache_salt") != plain.pop("cache_salt"), "the second would take over what the first has read"
    assert isinstance(mine["seed"], int) and "speculative" not in mine and plain.pop("speculative") is False
    assert {**mine, "begin": 0, "end": 0} == {**plain, "begin": 0, "end": 0}


def test_the_clocks_are_those_of_the_wire(page: Page) -> None:
    chat(page, [(100, "a"), (100, "b"), (0, "b"), (0, "b")], SLOW)
    send(page, "Hello", "#race")
    (mine, plain) = page.ask(FIGURES)
    assert 0.2 <= mine[0] < 30 and 0.4 <= plain[0] < 30
    wanted = plain[0] / mine[0]
    times = float(re.findall(r"\d+\.\d\d", page.text(".sentence"))[0])
    assert page.text(".sentence").startswith("Speculative was") and times == pytest.approx(wanted, rel=0.06)


def test_the_replay_is_side_by_side(page: Page) -> None:
    chat(page, QUICK, [(400, "a"), *[(400, "b")] * 3])
    page.fill("#prompt", "Hello")
    page.click("#race")
    page.wait("document.querySelector('#status').innerText.startsWith('Side by side')")
    page.wait(f"{TEXTS}[0] === 'abbb' && {TEXTS}[1] !== 'abbb'")  # one has ended while the other is under way
    page.wait(ENDED)
    before = page.ask(FIGURES), page.text(".sentence")
    assert page.ask(f"(document.querySelector('.replay').click(), {TEXTS})") == ["", ""]
    assert page.text(".sentence") == ""
    page.press("Escape")
    page.wait(f"{TEXTS}[1] === 'abbb'")
    assert (page.ask(FIGURES), page.text(".sentence")) == before


def test_a_race_that_ends_early_keeps_the_answer(page: Page) -> None:
    chat(page, QUICK, [(0, "a"), (10_000, "b")], QUICK, "The engine is on fire.", "It still is.")
    page.fill("#prompt", "Hello")
    page.click("#race")
    page.wait(f"{TEXTS}[1] === 'a'")
    page.press("Escape")
    page.wait(ENDED)
    assert page.text(ANSWER) == "abbb" and count(page, ".race") == 0 and page.text("#status") == "Stopped."
    page.click("#race")  # the field is empty: the same question again
    page.wait("!document.querySelector('#error').hidden")
    assert page.text(ANSWER) == "abbb" and count(page, ".exchange") == 1
    assert page.ask("asked.map((one) => one.messages[0].content)") == ["Hello"] * 4
    page.click("#race")
    page.wait("document.querySelector('#error').innerText === 'It still is.'")
    assert page.text(ANSWER) == "abbb" and count(page, ".exchange") == 1


def test_there_is_none_without_drafters(page: Page) -> None:
    assert page.ask("document.querySelector('#race').hidden") is False
    served = {"data": [{"id": "m", "speculative": {"methods": ["none"]}}]}
    page.ask(f"window.fetch = async () => new Response({json.dumps(json.dumps(served))})")
    page.fill("#key", "x")
    page.wait("document.querySelector('#race').hidden")


SENTENCES = [
    (1.0, [1, 2], 1.8, [1, 2], "Speculative was 1.80× as quick, the same text."),
    (1.5, [1, 2], 1.0, [1, 2], "Speculative took 1.50× as long, the same text."),
    (1.0, [1, 2], 1.02, [1, 2], "Speculative was as quick as plain, the same text."),
    (1.0, [1, 2, 3], 2.0, [1, 4, 3], "Speculative was 2.00× as quick; the texts differ from token 2 on."),
    (1.0, [1, 2], 2.0, [1, 2, 3], "Speculative was 2.00× as quick; the texts differ from token 3 on."),
    (1.0, [1, 2, 3], 2.0, [1, 2], "Speculative was 2.00× as quick; the texts differ from token 3 on."),
]


@pytest.mark.parametrize(("seconds", "ids", "others", "other_ids", "wanted"), SENTENCES)
def test_what_is_said(
    page: Page, seconds: float, ids: list[int], others: float, other_ids: list[int], wanted: str
) -> None:
    def run(seconds: float, ids: list[int]) -> str:
        return f"{{seconds: {seconds}, steps: [{{ids: {ids[:1]}}}, {{ids: {ids[1:]}}}]}}"

    asked = (
        f"import('./page/race.js').then(({{ sentence }}) => sentence({run(seconds, ids)}, {run(others, other_ids)}))"
    )
    assert page.ask(asked) == wanted


def test_the_panes_fit_a_phone(page: Page) -> None:
    page.resize(390, 844)
    chat(page, [(0, "x" * 200)], [(0, "x" * 200)])
    send(page, "Hello", "#race")
    assert page.ask("document.documentElement.scrollWidth") <= 390
    assert page.ask("document.querySelector('#turns').scrollWidth <= document.querySelector('#turns').clientWidth")
    left, right = page.ask("[...document.querySelectorAll('.pane')].map((one) => one.getBoundingClientRect().top)")
    assert left == right, "side by side"


def test_the_requests_of_a_race_are_possible(client: httpx.Client) -> None:
    """What the page sends is what the server holds: a salt, a seed as large as it draws, and plain decoding."""
    asked = {
        "prompt": PROMPT,
        "max_tokens": 2,
        "speculative": False,
        "cache_salt": "race-1-2-3",
        "seed": 2**32 - 1,
        "top_k": 0,
    }
    reply = client.post("/v1/completions", json=asked)
    assert reply.status_code == 200 and reply.json()["speculative"]["num_speculative_tokens"] == 0
