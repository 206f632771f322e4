"""The page at `/`, in a headless browser where there is one: it writes, colours, counts, stops, and shows errors."""

import json
import tomllib
from pathlib import Path

import httpx
import pytest
from headless import Page

from outdraft import LLM, SamplingParams
from tests.server.on_page import ANSWER, NUM_TOKENS, PROMPT, SHOWN, send

ROOT = Path(__file__).parents[2]


def test_files_are_cached_by_their_tag(client: httpx.Client) -> None:
    first = client.get("/")
    assert first.status_code == 200 and first.headers["content-type"] == "text/html; charset=utf-8"
    again = client.get("/", headers={"If-None-Match": f'"other", W/{first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/", headers={"If-None-Match": '"other"'}).status_code == 200
    assert client.get("/page/app.js").headers["etag"] != first.headers["etag"]


def test_the_browser_is_forbidden_what_the_page_does_not_need(client: httpx.Client) -> None:
    shown = client.get("/")
    policy = shown.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'") and "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy and shown.headers["x-content-type-options"] == "nosniff"
    assert "http" not in shown.text  # nothing from elsewhere


def test_its_files_are_in_the_package() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    kept = [path for kind in told["outdraft.server"] for path in (ROOT / "src/outdraft/server").glob(kind)]
    assert {path.name for path in kept} >= {path.name for path in (ROOT / "src/outdraft/server/page").iterdir()}


@pytest.mark.parametrize("name", ["app.py", "..%2Fapp.py", "%2e%2e/app.py", "..%5Capp.py", "none.js", ""])
def test_nothing_else_is_served(client: httpx.Client, name: str) -> None:
    reply = client.get(f"/page/{name}")
    assert reply.status_code == 404 and "import" not in reply.text


def test_chunks_tell_the_text_of_each_token(client: httpx.Client, llm: LLM) -> None:
    """Halves of characters too: it may write nothing but two of the three bytes of a sign."""
    asked = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "return_token_ids": True}
    choice = client.post("/v1/completions", json=asked).json()["choices"][0]
    assert "".join(choice["token_texts"]) == choice["text"]
    assert len(choice["token_texts"]) == len(choice["token_ids"]) == len(choice["token_sources"]) == 12
    halves = [token for token in llm.encode("夜") if len(llm.get_tokenizer().token_bytes(token)) == 1][:2]
    forced = {**asked, "max_tokens": 2, "allowed_token_ids": halves}
    choice = client.post("/v1/completions", json=forced).json()["choices"][0]
    assert "".join(choice["token_texts"]) == choice["text"] and "\ufffd" in choice["text"]


def test_a_text_is_continued_and_every_token_has_its_source(page: Page, llm: LLM) -> None:
    page.click("#colours")
    send(page, PROMPT)
    plain = llm.generate(PROMPT, SamplingParams(max_tokens=NUM_TOKENS), num_speculative_tokens=0)
    assert page.ask(f"{SHOWN}.map((one) => one.textContent).join('')") == plain.text
    written = llm.generate(PROMPT, SamplingParams(max_tokens=NUM_TOKENS))
    assert page.ask(f"{SHOWN}.map((one) => one.className)") == [f"token {one}" for one in written.sources]
    assert page.text("#num-tokens") == str(NUM_TOKENS)
    assert page.text("#tau") == f"{written.stats.tau:.2f}"
    rates = [f"{round(rate * 100)} %" for rate in written.stats.acceptance_by_position]
    assert page.ask("[...document.querySelectorAll('.bar span:first-child')].map((one) => one.textContent)") == rates
    assert page.text("#speedup").endswith("×") and "Estimated" in page.text("#speedup-note")
    assert page.problems == []


def in_tree(page: Page, kind: str) -> list[str]:
    """Texts of the tree's nodes of this kind."""
    return page.ask(f"[...document.querySelectorAll('#tree .token.{kind}')].map((one) => one.textContent)")


def test_the_draft_of_a_pass_is_shown_on_demand(page: Page, llm: LLM) -> None:
    page.click("#colours")
    send(page, PROMPT)
    assert page.ask("document.querySelectorAll('#tree .token').length") == 0, "the user has not asked for it"
    page.ask("document.querySelector('#tree-card').open = true")
    assert page.text("#tree-pass") == "No pass" and "from the next answer on" in page.text("#tree-note")
    send(page, PROMPT)
    params = SamplingParams(max_tokens=NUM_TOKENS)
    passes = list(llm.stream(PROMPT, params, return_draft_tree=True))
    assert page.text("#tree-pass") == f"Pass {len(passes)} of {len(passes)}"
    assert page.ask("document.querySelector('#tree-on').disabled")
    drafted = [i for i, one in enumerate(passes) if one.sources[0] == "accepted"]
    assert drafted, "some draft must have been right"
    for i, click in ((drafted[0], True), (drafted[0] + 1, False)):
        tree = passes[i].draft_tree
        assert tree is not None
        page.click(f".exchange:last-child [data-pass='{i + 1}']" if click else "#tree-on")
        assert page.text("#tree-pass") == f"Pass {i + 1} of {len(passes)}"
        spell = llm.get_tokenizer().token_text
        for status in ("pending", "accepted", "rejected", "unreached"):
            wanted = [spell(one) for one, is_ in zip(tree.tokens, tree.statuses, strict=True) if is_ == status]
            assert in_tree(page, status) == [text.replace("\n", "⏎") for text in wanted], status
    page.click("#tree-back")
    assert page.text("#tree-pass") == f"Pass {drafted[0] + 1} of {len(passes)}"
    assert "Drafted by ngram" in page.text("#tree-note") and page.problems == []
    page.click("#clear")
    assert page.text("#tree-pass") == "No pass"


def test_plain_decoding_writes_the_same_text(page: Page) -> None:
    send(page, PROMPT)
    drafted = page.text(ANSWER)
    page.fill("#method", "off")
    send(page, PROMPT)
    assert page.text(ANSWER) == drafted


def test_a_chat_remembers_what_was_said(page: Page, llm: LLM) -> None:
    page.click("input[value=chat]")
    send(page, "How are you?")
    send(page, "And now?")
    messages = [{"role": "user", "content": "How are you?"}]
    params = SamplingParams(max_tokens=NUM_TOKENS)
    first = llm.chat(messages, params).text
    messages += [{"role": "assistant", "content": first}, {"role": "user", "content": "And now?"}]
    texts = page.ask("JSON.parse(localStorage.talk).flatMap((one) => [one.question, one.text])")
    assert texts == ["How are you?", first, "And now?", llm.chat(messages, params).text]


def test_stop_ends_the_request_and_keeps_what_was_written(page: Page, client: httpx.Client) -> None:
    page.fill("#max-tokens", "900")
    page.fill("#method", "off")
    page.fill("#prompt", PROMPT)
    page.click("#send")
    page.wait(f"{SHOWN}.length > 2")
    page.click("#stop")
    page.wait("document.querySelector('#status').innerText === 'Stopped.'")
    assert 2 < page.ask(f"{SHOWN}.length") < 900
    assert not page.ask("document.querySelector('#send').hidden")
    for _ in range(200):
        if client.get("/load").json()["server_load"] == 0:
            return
        page.ask("new Promise((done) => setTimeout(done, 50))")
    raise AssertionError("the server goes on")


def test_markup_in_a_text_stays_text(page: Page) -> None:
    send(page, "<img src=x onerror='document.title = 1'><b>bold</b>")
    assert page.ask("document.querySelectorAll('#turns img, #turns b').length") == 0
    assert "<b>bold</b>" in page.text("#turns")
    assert page.problems == []


def test_an_error_is_shown_and_the_question_kept(page: Page) -> None:
    page.click("input[value=chat]")
    page.fill("#max-tokens", "4000")
    page.ask("document.querySelector('#max-tokens').max = ''")
    send(page, "How are you?" * 1000)
    assert "context" in page.text("#error")
    assert page.ask("document.querySelector('#prompt').value") == "How are you?" * 1000
    page.fill("#temperature", "-1")
    send(page, "How are you?")
    assert page.text("#error") == "Temperature: 0 (likeliest) to 1,000,000."
    assert page.ask("document.querySelector('#prompt').value") == "How are you?"
    assert page.ask("document.querySelectorAll('.exchange').length") == 0


def test_the_key_leaves_with_the_tab_and_the_colours_stay(page: Page, address: str) -> None:
    page.fill("#key", "abc")
    page.fill("#theme", "dark")
    assert page.ask("document.documentElement.dataset.theme") == "dark"
    assert page.ask("localStorage.theme") == "dark" and page.ask("!JSON.stringify(localStorage).includes('abc')")
    assert page.ask("Object.entries({...sessionStorage})") == [["api-key", "abc"]]
    page.open(f"{address}/")
    assert page.ask("document.querySelector('#key').value") == "abc"
    assert page.ask("document.documentElement.dataset.theme") == "dark"


def test_it_fits_a_phone(page: Page) -> None:
    page.resize(360, 740)
    send(page, "a" * 300)
    assert page.ask("document.documentElement.scrollWidth") <= 360


def test_every_field_has_a_label(page: Page) -> None:
    fields = "[...document.querySelectorAll('input, select, textarea')]"
    assert page.ask(f"{fields}.filter((one) => !one.labels.length).map((one) => one.id)") == []


CASES = {  # what is shown, tokens; the pieces found
    "held back": ([("ab", ["ab", "cd"]), ("c", []), ("d", [])], ["ab", "cd"]),
    "taken out": ([("", ["<think>"]), ("so", ["so"]), ("", ["</think>"]), ("yes", ["yes"])], ["so", "yes"]),
    "cut at a stop": ([("ab", ["ab", "cSTOP"]), ("c", [])], ["ab", "c"]),
    "no tokens shown": ([("ab", [])], ["ab"]),
}


@pytest.mark.parametrize("case", CASES)
def test_tokens_are_laid_along_the_text(page: Page, case: str) -> None:
    pieces, wanted = CASES[case]
    found = page.ask(f"""import("./page/tokens.js").then(({{ Tokens }}) => {{
        const laid = new Tokens();
        const take = ([shown, texts]) => laid.take(shown, texts.map((text) => ({{ text }})));
        const found = {json.dumps(pieces)}.flatMap(take);
        return [...found, ...laid.finish()].map((one) => one.text);
    }})""")
    assert found == wanted


@pytest.mark.parametrize(
    ("passes", "wanted"),
    [
        ([(1, 2, 2, 4.0), (5, 2, 8, 6.0)], {"times": 2.0, "isMeasured": True, "rows": 1}),  # 10 tokens of 2 s in 10 s
        ([(5, 2, 8, 6.0), (3, 1, 3, 2.0)], {"times": 2.75, "isMeasured": False, "rows": 3}),
        ([(1, 1, 1, 9.0), (5, 9, 19, 1.0)], {"times": 2.0, "isMeasured": True, "rows": 1}),  # at most tokens a pass
        ([], None),
    ],
)
def test_the_estimate_against_plain(page: Page, passes: list[tuple[int, int, int, float]], wanted: object) -> None:
    rows = [
        f"{{rows: {rows}, num_passes: {num}, num_tokens: {tokens}, draft_seconds: 0, target_seconds: {seconds}, "
        "rest_seconds: 0}"
        for rows, num, tokens, seconds in passes
    ]
    asked = f"import('./page/figures.js').then(({{ speedup }}) => speedup([{', '.join(rows)}]))"
    assert page.ask(asked) == wanted
