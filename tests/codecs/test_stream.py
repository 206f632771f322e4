"""Pieces join to the whole and never change; stop strings cut at the same character wherever token borders fall."""

from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outdraft.codecs.stops import StopStrings, StopTable
from outdraft.codecs.stream import TextStream
from outdraft.codecs.text import TextCodec
from tests.helpers.byte_codec import ByteCodec

ANY_FIXTURE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def pieces(codec, ids: list[int], continues: bool) -> list[str]:
    stream = TextStream(codec, continues=continues)
    return [*(stream.push(i) for i in ids), stream.finish()]


@given(ids=st.lists(st.integers(0, 300), max_size=60), continues=st.booleans())
def test_bytes_join_to_the_whole_even_when_malformed(ids: list[int], continues: bool):
    codec = ByteCodec()
    assert "".join(pieces(codec, ids, continues)) == codec.decode(ids, continues=continues)


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_no_half_characters(text: str):
    codec = ByteCodec()
    written = pieces(codec, codec.encode(text), True)
    assert "".join(written) == text
    assert all(len(piece) <= 1 for piece in written), "a byte completes at most one character"


@ANY_FIXTURE
@given(data=st.data(), continues=st.booleans())
def test_real_tokenizers_join_to_the_whole(codec: TextCodec, data: st.DataObject, continues: bool):
    ids = data.draw(st.lists(st.integers(0, codec.vocab_size + 2), max_size=30))
    assert "".join(pieces(codec, ids, continues)) == codec.decode(ids, continues=continues)


LETTERS = st.text("ab€", max_size=24)
STOPS = st.lists(st.text("ab€", min_size=1, max_size=4), max_size=4)


def first_completed(text: str, stops: list[str]) -> tuple[int, str] | None:
    """By definition: the first end of any stop string, the longest of those that end there."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return end - len(longest), longest
    return None


@given(text=LETTERS, stops=STOPS, cuts=st.lists(st.integers(0, 24)))
def test_stop_is_found_wherever_the_border_falls(text: str, stops: list[str], cuts: list[int]):
    borders = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    parts = [text[a:b] for a, b in pairwise(borders)]
    finder = StopStrings(StopTable(stops))
    shown = ""
    expected = first_completed(text, stops)
    for i, part in enumerate(parts):
        hit = finder.push(part)
        so_far = "".join(parts[: i + 1])
        if hit is not None:
            assert expected == (hit.offset, hit.text)
            assert hit.token == i and first_completed("".join(parts[:i]), stops) is None
            assert len(shown) <= hit.offset, "text of the stop string was shown"
            return
        safe = so_far[: len(so_far) - finder.held]
        assert safe.startswith(shown)
        shown = safe
        held = max((n for stop in stops for n in range(len(stop)) if so_far.endswith(stop[:n])), default=0)
        assert finder.held == held, "holds back exactly what may become a stop string"
    assert expected is None


def test_what_the_least_tokens_complete_does_not_count():
    finder = StopStrings(StopTable(["ab", "c"]), min_tokens=2)
    assert finder.push("ab") is None and finder.push("ca") is None
    hit = finder.push("b")
    assert hit is not None and (hit.token, hit.offset) == (2, 3)


def test_after_a_hit_nothing_is_read():
    finder = StopStrings(StopTable(["\n\n"]))
    assert finder.push("a\n") is None
    hit = finder.push("\nb\n\n")
    assert hit is not None and (hit.token, hit.offset) == (1, 1)
    assert finder.push("more") is hit
