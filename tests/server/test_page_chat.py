"""The page as a chat: what is drawn, kept, copied, written again, taken back; settings, keys, screen readers."""

import json
import re

import pytest
from headless import Page

from tests.server.on_page import ANSWER, ENDED, NUM_TOKENS, chat, count, load, send

MARKDOWN = [(0, one) for one in ("A **bold", "** word\n\n", "```py\n", "x = 1\n", "```\n", "- a\n", "- b")]


def test_an_answer_is_drawn_and_its_tokens_on_demand(page: Page) -> None:
    chat(page, MARKDOWN)
    send(page, "Hello")
    markup = page.ask(f"document.querySelector('{ANSWER}').innerHTML")
    assert markup.startswith("<p>A <strong>bold</strong> word</p><figure") and markup.endswith("<li><p>b</p></li></ul>")
    page.click("#colours")
    tokens = page.ask(f"[...document.querySelectorAll('{ANSWER} .token.plain')].map((one) => one.textContent)")
    assert tokens == [text for _, text in MARKDOWN]
    page.click("#colours")
    assert page.ask(f"document.querySelector('{ANSWER}').innerHTML") == markup


@pytest.mark.parametrize("is_coloured", [False, True])
def test_two_thousand_tokens_are_drawn_with_each_frame_at_most(page: Page, is_coloured: bool) -> None:
    if is_coloured:
        page.click("#colours")
    chat(page, [(i % 20 == 0, f"w{i} " if i % 30 else "\n\n- ") for i in range(2000)])
    page.ask("""(() => {
        window.frames_seen = 0;
        const request = window.requestAnimationFrame;
        request(function next() { frames_seen += 1; request(next); });
        window.requested = 0;
        window.requestAnimationFrame = (act) => (requested += 1, request(act));
        window.changes = 0;
        const watched = new MutationObserver(() => (changes += 1));
        watched.observe(document.querySelector("#turns"), { childList: true, subtree: true });
    })()""")
    send(page, "Hello")
    assert page.text(ANSWER).split()[-1] == "w1999"
    assert page.ask("requested <= frames_seen + 2")
    assert page.ask("changes <= frames_seen + 6"), page.ask(
        "[changes, frames_seen]"
    )  # what begins and ends a turn, too


def test_thoughts_stand_apart(page: Page, address: str) -> None:
    kept = {"mode": "chat", "question": "q", "text": "*yes*", "thought": "so", "pieces": [], "num": 2, "race": ""}
    page.ask(f"localStorage.setItem('talk', {json.dumps(json.dumps([kept]))})")
    load(page, address)
    assert page.ask("document.querySelector('.thought .words').textContent") == "so"
    assert page.ask(f"document.querySelector('{ANSWER}').innerHTML") == "<p><em>yes</em></p>"


def test_a_conversation_survives_until_it_is_cleared(page: Page, address: str) -> None:
    page.click("input[value=chat]")
    send(page, "How are you?")
    shown = page.text("#turns")
    page.click("#colours")
    coloured = page.ask(f"document.querySelector('{ANSWER}').innerHTML")
    page.click("#colours")
    load(page, address)
    assert page.text("#turns") == shown and count(page, ".exchange") == 1
    page.click("#colours")
    assert page.ask(f"document.querySelector('{ANSWER}').innerHTML") == coloured
    chat(page, [(0, "Yes")])
    send(page, "And now?")
    roles = [one["role"] for one in page.ask("asked[0].messages")]
    assert roles == ["user", "assistant", "user"]
    page.click("#clear")
    assert count(page, ".exchange") == 0 and page.ask("localStorage.talk ?? null") is None
    load(page, address)
    assert count(page, ".exchange") == 0


@pytest.mark.parametrize("kept", ["{", "3", '[{"mode": "chat"}]', "[null]"])
def test_what_another_version_kept_is_no_obstacle(page: Page, address: str, kept: str) -> None:
    page.ask(f"localStorage.setItem('talk', {json.dumps(kept)}), localStorage.setItem('settings', {json.dumps(kept)})")
    load(page, address)
    assert page.problems == [] and count(page, ".exchange") == 0


def test_an_answer_and_its_code_are_copied(page: Page) -> None:
    chat(page, MARKDOWN)
    send(page, "Hello")
    page.ask("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.click(f"{ANSWER} figure .copy")
    page.wait("window.copied === 'x = 1'")
    page.click(".exchange:last-child .answer > .tools .copy")
    page.wait(f"window.copied === {json.dumps(''.join(text for _, text in MARKDOWN))}")
    page.wait("document.querySelector('.answer > .tools .copy').innerText === 'Copied'")
    page.ask("""(() => {
        navigator.clipboard.writeText = () => Promise.reject(new Error("no HTTPS"));
        document.execCommand = () => { window.selected = document.activeElement.value; return true; };
    })()""")
    page.click(f"{ANSWER} figure .copy")
    page.wait("window.selected === 'x = 1'")


def test_an_answer_is_written_again(page: Page) -> None:
    chat(page, [(0, "one")], [(0, "two")], "The engine is on fire.")
    send(page, "Hello")
    page.fill("#prompt", "unsent")
    page.click(".again")
    page.wait(f"{ENDED} && document.querySelector('{ANSWER}').innerText === 'two'")
    assert page.ask("asked.map((one) => one.messages)") == [[{"role": "user", "content": "Hello"}]] * 2
    page.click(".again")
    page.wait("!document.querySelector('#error').hidden")
    assert page.text("#error") == "The engine is on fire."
    assert page.text(ANSWER) == "two" and count(page, ".exchange") == 1, "the old answer stays"
    assert page.ask("document.querySelector('#prompt').value") == "unsent"
    assert page.ask("JSON.parse(localStorage.talk).map((one) => one.text)") == ["two"]


def test_the_last_question_is_taken_back(page: Page) -> None:
    chat(page, [(0, "one")], [(0, "two")])
    send(page, "First")
    send(page, "Second")
    buttons = "[...document.querySelectorAll('.edit')].map((one) => getComputedStyle(one).display !== 'none')"
    assert page.ask(buttons) == [False, True]
    page.click(".exchange:last-child .edit")
    assert page.ask("document.querySelector('#prompt').value") == "Second"
    assert page.ask("document.activeElement.id") == "prompt" and count(page, ".exchange") == 1
    assert page.ask("JSON.parse(localStorage.talk).length") == 1


def test_what_was_written_before_an_error_is_kept(page: Page) -> None:
    chat(page, [(0, "some"), (10_000, "more")])
    page.fill("#prompt", "Hello")
    page.click("#send")
    page.wait(f"document.querySelector('{ANSWER}')?.innerText === 'some'")
    assert page.ask("document.querySelector('.answer').getAttribute('aria-busy')") == "true"
    page.press("Escape")
    page.wait(ENDED)
    assert page.text(".exchange:last-child .note") == "Stopped."
    assert page.ask("JSON.parse(localStorage.talk)[0].text") == "some"


def test_a_cut_is_named(page: Page) -> None:
    page.click("input[value=chat]")
    send(page, "How are you?")
    assert page.text(".note") == f"Cut at {NUM_TOKENS} tokens, which is Max tokens."
    chat(page, [(0, "a"), (0, "b", "length")])
    send(page, "And now?")
    assert page.text(".exchange:last-child .note").startswith("Cut at 2 tokens: a limit of the server")


SETTINGS = {"temperature": 0.5, "top-p": 0.9, "top-k": 40, "max-tokens": 100, "seed": -7}


def test_settings_are_sent_and_kept(page: Page, address: str) -> None:
    for name, value in SETTINGS.items():
        page.fill(f"#{name}", str(value))
    page.fill("#system", "Be kind.")
    load(page, address)
    chat(page, [(0, "one")])
    send(page, "Hello")
    (asked,) = page.ask("asked")
    assert {name: asked[name.replace("-", "_")] for name in SETTINGS} == SETTINGS
    assert asked["messages"][0] == {"role": "system", "content": "Be kind."}


BEYOND = [
    *[("temperature", "-1"), ("top-p", "0"), ("top-p", "1.5"), ("top-k", "-2"), ("top-k", "1.5")],
    *[("max-tokens", "0"), ("max-tokens", "99999"), ("seed", "0.5")],
]


@pytest.mark.parametrize(("name", "value"), BEYOND)
def test_a_setting_beyond_its_limits_is_named_with_them(page: Page, name: str, value: str) -> None:
    page.fill(f"#{name}", value)
    send(page, "Hello")
    assert page.text("#error") == f"{page.text(f'label[for={name}]')}: {page.text(f'#{name}-note')}."
    assert re.search(r"\d|whole", page.text(f"#{name}-note")) and count(page, ".exchange") == 0


def test_enter_sends_and_shift_enter_begins_a_line(page: Page) -> None:
    chat(page, [(0, "one")])
    page.ask("document.querySelector('#prompt').focus()")
    page.call("Input.insertText", text="a")
    enter = {"windowsVirtualKeyCode": 13, "text": "\r"}
    page.press("Enter", modifiers=8, **enter)
    assert page.ask("document.querySelector('#prompt').value") == "a\n" and count(page, ".exchange") == 0
    page.press("Enter", **enter)
    page.wait(f"document.querySelector('.exchange') && {ENDED}")
    assert page.ask("asked[0].messages[0].content") == "a\n"


def test_keys_reach_everything_in_order_and_show_where_they_are(page: Page) -> None:
    chat(page, MARKDOWN)
    send(page, "Hello")
    page.ask("document.activeElement.blur(), document.querySelector('.skip').focus()")
    seen = []
    for _ in range(18):
        page.press("Tab", windowsVirtualKeyCode=9)
        focused = "document.activeElement"
        seen.append(page.ask(f"{focused}.id || {focused}.name || {focused}.className || {focused}.localName"))
        outline = page.ask(
            f"getComputedStyle({focused}.name === 'mode' ? {focused}.parentElement : {focused}).outlineStyle"
        )
        assert outline == "solid", seen
    inner = ["edit last", "copy", "pre", "copy", "again last"]
    wanted = ["theme", "mode", "colours", "turns", *inner, "prompt", "clear", "race", "send", "SUMMARY", "SUMMARY"]
    assert [one if one != "summary" else "SUMMARY" for one in seen[: len(wanted)]] == wanted
    assert seen[len(wanted) :] == ["temperature", "top-p", "top-k", "max-tokens"][: 18 - len(wanted)]


ROLES = [
    *[("log", "Conversation"), ("heading", "You"), ("heading", "Answer"), ("switch", "Token colours")],
    *[("textbox", "Message"), ("button", "Copy the code"), ("main", "")],
]
FIELDS = ("button", "textbox", "spinbutton", "combobox", "switch", "radio")


def test_screen_readers_get_names_and_roles(page: Page) -> None:
    chat(page, MARKDOWN)
    send(page, "Hello")
    page.ask("document.querySelector('#tree-card').open = true")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    named = {
        (one["role"]["value"], one.get("name", {}).get("value", "").strip()) for one in nodes if not one.get("ignored")
    }
    for wanted in ROLES:
        assert wanted in named, wanted
    unnamed = [one for one in named if one[0] in FIELDS and not one[1]]
    assert unnamed == []
    assert page.ask("document.querySelector('#turns').getAttribute('aria-live')") == "polite"
    assert page.ask("document.querySelector('#status').getAttribute('role')") == "status"


PAIRS = [  # text, ground
    *[("text", "ground"), ("text", "card"), ("quiet", "ground"), ("quiet", "card"), ("bonus", "card")],
    *[("on-main", "main"), ("error", "error-ground"), ("quiet", "error-ground")],
    *[("text", "accepted-ground"), ("text", "recovered-ground"), ("text", "bonus-ground")],
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_its_colours_follow_the_system_and_can_be_read(page: Page, scheme: str) -> None:
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    page.wait(f"document.documentElement.dataset.theme === '{scheme}'")
    names = sorted({one for pair in PAIRS for one in pair})
    read = "getComputedStyle(document.documentElement).getPropertyValue"
    colours = {name: page.ask(f"{read}('--{name}').trim()") for name in names}
    page.call("Emulation.setEmulatedMedia", features=[])
    for one, other in PAIRS:
        light, dark = sorted((_luminance(colours[one]), _luminance(colours[other])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (one, other)


def _luminance(colour: str) -> float:
    """Of #rrggbb, as in https://www.w3.org/TR/WCAG21/#dfn-relative-luminance."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_wide_answers_fit_a_phone(page: Page) -> None:
    page.resize(390, 844)
    chat(page, [(0, "```\n" + "x" * 300 + "\n```\n\n|" + "a b c|" * 30 + "\n|" + "-|" * 30 + "\n\n" + "y" * 300)])
    send(page, "Hello")
    assert page.ask("document.documentElement.scrollWidth") <= 390
    assert page.ask("document.querySelector('#turns').scrollWidth <= document.querySelector('#turns').clientWidth")
    assert page.ask("document.querySelector('#send').getBoundingClientRect().bottom") <= 844, (
        "it can be sent without scrolling"
    )
