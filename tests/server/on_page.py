"""What tests of the page do with it."""

import json
from typing import Any

from headless import Page

PROMPT = "It was late when"
NUM_TOKENS = 24
SHOWN = "[...document.querySelectorAll('.exchange:last-child .answer > .words span')]"
ANSWER = ".exchange:last-child .answer > .words"
ENDED = "!document.querySelector('#send').hidden && !document.querySelector('[aria-busy]')"


def fresh(tab: Page, address: str) -> Page:
    """Loaded anew, with nothing remembered; answers are greedy and short."""
    tab.problems.clear()
    tab.resize(1200, 850)
    tab.open(f"{address}/")
    tab.ask("localStorage.clear(), sessionStorage.clear()")
    load(tab, address)
    tab.fill("#temperature", "0")
    tab.fill("#max-tokens", str(NUM_TOKENS))
    return tab


def load(page: Page, address: str) -> None:
    """Load it again, until it knows its server."""
    page.open("about:blank")
    page.open(f"{address}/")
    page.wait("document.querySelector('#model').innerText.includes('·')")


def send(page: Page, text: str, button: str = "#send") -> None:
    """And wait for the end."""
    page.fill("#prompt", text)
    page.click(button)
    page.wait(ENDED)


def count(page: Page, selector: str) -> int:
    """How many elements there are."""
    return int(page.ask(f"document.querySelectorAll({json.dumps(selector)}).length"))


def chat(page: Page, *answers: Any) -> None:
    """A chat whose answers are given: lists of (milliseconds, token[, reason]), or an error. `asked` has the bodies."""
    page.click("input[value=chat]")
    page.ask(f"""(() => {{
        const answers = {json.dumps(answers)};
        const error = (message) => new Response(JSON.stringify({{ error: {{ message }} }}), {{ status: 500 }});
        const send = async (to, steps, signal, entry) => {{
            const write = (data) => to.enqueue(new TextEncoder().encode(`data: ${{data}}\\n\\n`));
            signal.addEventListener("abort", () => to.error(new DOMException("", "AbortError")));
            for (const [i, [wait, text, reason]] of steps.entries()) {{
                if (wait) await new Promise((done) => setTimeout(done, wait));
                if (signal.aborted) return;
                const tokens = {{ token_ids: [i], token_texts: [text], token_sources: ["plain"] }};
                const ended = i === steps.length - 1 ? (reason ?? "stop") : null;
                const choice = {{ delta: {{ content: text }}, finish_reason: ended, ...tokens }};
                write(JSON.stringify({{ choices: [choice] }}));
            }}
            entry.end = performance.now();
            write("[DONE]");
            to.close();
        }};
        window.asked = [];
        window.fetch = async (path, {{ body, signal }}) => {{
            const entry = {{ path, begin: performance.now(), ...JSON.parse(body) }};
            asked.push(entry);
            const next = answers.shift();
            if (typeof next === "string") return error(next);
            return new Response(new ReadableStream({{ start: (to) => void send(to, next, signal, entry) }}));
        }};
    }})()""")
