"""Answers as Markdown: what is drawn, in whatever pieces; hostile text stays text; the work is small."""

import json
import random

import pytest
from headless import Page

from tests.server.on_page import fresh

CASES = {
    "heading": ("# One\n## Two ##", "<h3>One</h3><h4>Two</h4>"),
    "emphasis": ("*a* **b** ~~d~~ _e_", "<p><em>a</em> <strong>b</strong> <del>d</del> <em>e</em></p>"),
    "both": ("***a***", "<p><em><strong>a</strong></em></p>"),
    "within words": ("snake_case_name 2*3*4", "<p>snake_case_name 2<em>3</em>4</p>"),
    "marks alone": ("2 * 3 * 4 and a ** b", "<p>2 * 3 * 4 and a ** b</p>"),
    "crossed": ("*a _b* c_", "<p><em>a _b</em> c_</p>"),
    "threes": ("*a**b**c*", "<p><em>a<strong>b</strong>c</em></p>"),
    "code": ("`a*b*` and `` a`b ``", "<p><code>a*b*</code> and <code>a`b</code></p>"),
    "unclosed": ("`a and **b", "<p>`a and **b</p>"),
    "escapes": (r"\*a\* \[b\]", "<p>*a* [b]</p>"),
    "lines": ("a\nb<br>c", "<p>a<br>b<br>c</p>"),
    "rule": ("a\n\n---\nb", "<p>a</p><hr><p>b</p>"),
    "quote": ("> a\n> - b", "<blockquote><p>a</p><ul><li><p>b</p></li></ul></blockquote>"),
    "nested": ("- a\n  - b\n- c", "<ul><li><p>a</p><ul><li><p>b</p></li></ul></li><li><p>c</p></li></ul>"),
    "numbers": ("3. a\n\n   b\n4. c", '<ol start="3"><li><p>a</p><p>b</p></li><li><p>c</p></li></ol>'),
    "no list": ("in\n1984. So", "<p>in<br>1984. So</p>"),
    "image": ("![a](https://b.c/d.png)", None),
}  # fmt: skip
ADDRESSES = {
    "[a](https://b.c/d_(e))": "https://b.c/d_(e)",
    "<https://b.c>": "https://b.c/",
    "see https://b.c/d?e=f. So": "https://b.c/d?e=f",
    "(https://b.c/d)": "https://b.c/d",
    "[a](<mailto:b@c.d> 'e')": "mailto:b@c.d",
    "[https://b.c](https://d.e)": "https://d.e/",
}
HOSTILE = [
    "<img src=x onerror='document.title=1'>",
    "<script>document.title = 1</script>",
    "[a](javascript:document.title=1)",
    "[a](JaVaScRiPt:document.title=1)",
    "[a](java\tscript:document.title=1)",
    "[a](<javascript:document.title=1>)",
    "[a](data:text/html,<script>document.title=1</script>)",
    "[a](vbscript:x) [b](/relative) [c](//other) [d](file:///etc/passwd) [e](blob:x)",
    "![a](javascript:x)",
    "<javascript:document.title=1>",
    "[<img src=x onerror=alert(1)>](https://b.c/\"onmouseover=\"document.title=1)",
    "```\"><img src=x onerror=alert(1)>\n</code></pre><script>document.title=1</script>\n```",
    "| <img src=x> | b |\n|---|---|\n| <svg onload=alert(1)> | <iframe src=//a> |",
    "# <b onclick=alert(1)>a</b>",
    "&lt;img src=x&gt; &#60;b&#62;",
]  # fmt: skip
TAGS = "p h3 h4 h5 h6 em strong del code br hr blockquote ul ol li a pre figure figcaption span button div table"
TAGS += " thead tbody tr th td"
ALLOWED = {"href", "title", "target", "rel", "class", "start", "type", "tabindex", "role", "aria-label"}
LONG = (
    "# A\n\n1. **one** `two`\n   - three\n\n   ```py\n   x = 1\n   ```\n2. four\n\n| a | b |\n|--:|---|\n| 1 | 2 |\n\n"
    "> q\n> r\n\nend\n- x\n\n- y\npara\n\n    code\n\n~~~\nz\n~~~\n---\nlast *one*"
)


@pytest.fixture(scope="module")
def drawn(tab: Page, address: str) -> Page:
    """A page for texts of our own."""
    return fresh(tab, address)


def draw(page: Page, *pieces: str) -> str:
    """What they look like, as markup."""
    return page.ask(f"""import("./page/markdown.js").then(({{ Markdown }}) => {{
        window.place = document.createElement("div");
        const made = new Markdown(place);
        for (const one of {json.dumps(pieces)}) made.add(one);
        return place.innerHTML;
    }})""")


@pytest.mark.parametrize("case", CASES)
def test_what_is_drawn(drawn: Page, case: str) -> None:
    text, wanted = CASES[case]
    found = draw(drawn, text)
    assert found == wanted if wanted else ("<img" not in found and ">a</a>" in found)


@pytest.mark.parametrize("text", ADDRESSES)
def test_links_lead_where_they_say(drawn: Page, text: str) -> None:
    draw(drawn, text)
    assert drawn.ask("[...place.querySelectorAll('a')].map((one) => one.href)") == [ADDRESSES[text]]
    assert drawn.ask("place.querySelector('a').rel") == "noopener noreferrer nofollow"


def test_code_and_tables(drawn: Page) -> None:
    draw(drawn, "```py\nif a < b:\n    **c**\n```\nd")
    assert drawn.ask("place.querySelector('pre').textContent") == "if a < b:\n    **c**"
    assert drawn.ask("place.querySelector('figcaption span').textContent") == "py"
    draw(drawn, "| a | b \\| c |\n|:-:|--:|\n| *1* | `2` |\n| 3 |")
    cells = "[...place.querySelectorAll('th, td')].map((one) => `${one.className}:${one.textContent}`)"
    assert drawn.ask(cells) == ["center:a", "end:b | c", "center:1", "end:2", "center:3"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(drawn: Page, text: str) -> None:
    for pieces in ([text], list(text)):
        draw(drawn, *pieces)
        drawn.ask("document.body.append(place)")
        assert set(drawn.ask("[...place.querySelectorAll('*')].map((one) => one.localName)")) <= set(TAGS.split())
        held = "[...place.querySelectorAll('*')].flatMap((one) => one.getAttributeNames())"
        assert set(drawn.ask(held)) <= ALLOWED
        links = drawn.ask("[...place.querySelectorAll('a')].map((one) => one.protocol)")
        assert set(links) <= {"http:", "https:", "mailto:"}
        drawn.ask("place.remove()")
    assert drawn.ask("document.title") == "outdraft" and drawn.problems == []


def test_pieces_make_no_difference(drawn: Page) -> None:
    """However a text is cut, and whatever its blocks are: signs are drawn at random too."""
    rng = random.Random(3)
    signs = [
        "a",
        "b c",
        "\n",
        "\n",
        "\n\n",
        "- ",
        "1. ",
        "  ",
        "    ",
        "> ",
        "```",
        "`",
        "*",
        "**",
        "_",
        "|",
        "|-|-|",
        "---",
        "# ",
        "[x](",
        ")",
        "~~",
    ]
    texts = [LONG, *("".join(rng.choices(signs, k=rng.randint(3, 40))) for _ in range(300))]
    cut = []
    for text in texts:
        at = sorted(rng.sample(range(1, len(text)), min(len(text) - 1, rng.randint(1, 12))))
        cut.append([text[i:j] for i, j in zip([0, *at], [*at, None], strict=True)])
    differ = drawn.ask(f"""import("./page/markdown.js").then(({{ Markdown }}) => {{
        const draw = (pieces) => {{
            const place = document.createElement("div");
            const made = new Markdown(place);
            for (const one of pieces) made.add(one);
            return place.innerHTML;
        }};
        return {json.dumps(cut)}.filter((pieces) => draw(pieces) !== draw([pieces.join("")]));
    }})""")
    assert differ == []


@pytest.mark.parametrize(
    "sign",
    [
        "*a ",
        "[",
        "![",
        "](",
        "`",
        "``a`",
        "> ",
        "- ",
        "_a*",
        "<",
        "|",
        "(",
        "~~a ",
        "\n",
        "https://a",
        "[a](",
        "# ",
        "** ",
        "[a](b ",
    ],
)
def test_the_work_does_not_explode(drawn: Page, sign: str) -> None:
    """Of 100,000 characters, whatever they are. The limit is far above what it takes, which is some 50 ms."""
    draw(drawn, "")
    asked = f"""(async () => {{
        const {{ Markdown }} = await import("./page/markdown.js");
        const begin = performance.now();
        new Markdown(place).add({json.dumps(sign)}.repeat({100_000 // len(sign)}));
        document.body.append(place);
        place.offsetHeight;
        place.remove();
        return performance.now() - begin;
    }})()"""
    assert drawn.ask(asked) < 5000


def test_nothing_is_nested_deep(drawn: Page) -> None:
    """A browser may die of a tree of thousands of levels."""
    draw(drawn, "*a " * 5000 + "b* " * 5000 + "\n\n" + "> " * 5000 + "a")
    depth = "[...place.querySelectorAll(':not(:has(*))')].map((one) => { let depth = 0; "
    depth += "for (let at = one; at !== place; at = at.parentElement) depth += 1; return depth; })"
    assert max(drawn.ask(depth)) < 30


def test_drawing_a_long_stream_takes_little_of_it(drawn: Page) -> None:
    """Blocks that are over are not drawn again: their nodes stay the same, and 2,000 tokens cost few new ones."""
    kept, made = drawn.ask(f"""import("./page/markdown.js").then(({{ Markdown }}) => {{
        const place = document.createElement("div");
        const text = {json.dumps(LONG + chr(10) * 2)}.repeat(40);
        let count = 0;
        const create = document.createElement;
        document.createElement = (name) => (count += 1, create.call(document, name));
        const markdown = new Markdown(place);
        markdown.add(text.slice(0, 400));
        const first = place.firstChild;
        for (let i = 400; i < text.length; i += 4) markdown.add(text.slice(i, i + 4));
        document.createElement = create;
        return [place.firstChild === first, count / place.querySelectorAll("*").length];
    }})""")
    assert kept and made < 40
