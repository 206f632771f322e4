"""Where requests go: to whom holds their beginning, then to whom knows their group, unless it has too much to do."""

from collections import Counter

import pytest

from outdraft.server.fleet.affinity import Affinity
from outdraft.server.fleet.route_key import RouteKey, route_key

HERE = ["a", "b", "c"]


def key(*pages, group=None):
    return RouteKey(pages=pages, group=group)


def send(affinity, to, *keys):
    for one in keys:
        affinity.sent(one, to)
        affinity.done(to)


def test_the_longest_held_beginning_decides():
    affinity = Affinity()
    send(affinity, "a", key(1, 2, 3))
    send(affinity, "b", key(1, 2, 4, 5))
    assert affinity.rank(key(1, 2, 3, 9), HERE)[0] == "a"
    assert affinity.rank(key(1, 2, 4, 9), HERE)[0] == "b"
    assert affinity.rank(key(1, 8), HERE)[2] == "c"
    assert affinity.num_held(key(1, 7, 3), "a") == 1


def test_a_group_goes_where_its_last_request_went():
    affinity = Affinity()
    send(affinity, "a", key(1, group=70))
    send(affinity, "c", key(2, group=70))
    assert affinity.rank(key(50, group=70), HERE)[0] == "c"
    assert affinity.rank(key(1, group=70), HERE)[0] == "a", "a prefix counts for more"
    affinity.sent(key(3, group=70), "c")
    assert affinity.rank(key(50, group=70), HERE)[0] == "c", "although it has more to do than the others"


def test_load_breaks_ties_and_bounds_imbalance():
    affinity = Affinity(most_ahead=2)
    affinity.sent(key(1), "a")
    assert affinity.rank(key(9), HERE)[2] == "a"
    assert affinity.rank(key(1), HERE)[0] == "a"
    affinity.sent(key(1), "a")
    assert affinity.rank(key(1), HERE)[2] == "a", "two ahead of the others are too many"
    affinity.done("a")
    assert affinity.rank(key(1), HERE)[0] == "a"


def test_a_hot_prefix_never_gets_further_ahead_than_the_bound():
    affinity, under_way = Affinity(most_ahead=3), Counter()
    for _ in range(90):
        to = affinity.rank(key(1, 2), HERE)[0]
        affinity.sent(key(1, 2), to)
        under_way[to] += 1
        assert max(under_way[one] for one in HERE) - min(under_way[one] for one in HERE) <= 3


def test_new_beginnings_are_spread_and_every_router_decides_alike():
    places = [Affinity().rank(key(i), HERE)[0] for i in range(300)]
    assert places == [Affinity().rank(key(i), list(reversed(HERE)))[0] for i in range(300)]
    assert min(Counter(places).values()) > 70
    without_c = [Affinity().rank(key(i), ["a", "b"])[0] for i in range(300)]
    assert all(now == before for now, before in zip(without_c, places, strict=True) if before != "c")


def test_what_goes_takes_its_memory_along():
    affinity = Affinity()
    send(affinity, "a", key(1, 2, group=7))
    affinity.keep_only(["b", "c"])
    assert affinity.num_held(key(1, 2), "a") == 0
    affinity.keep_only(HERE)
    assert affinity.num_held(key(1, 2), "a") == 0


def test_what_a_replica_tells_of_its_pages_is_believed():
    affinity = Affinity()
    affinity.stored("b", [1, 2, 3])
    assert affinity.rank(key(1, 2, 3, 4), HERE)[0] == "b" and affinity.num_held(key(1, 2, 3, 4), "b") == 3
    affinity.removed("b", [2])
    assert affinity.num_held(key(1, 2, 3, 4), "b") == 1


def test_its_memory_is_bounded():
    affinity = Affinity(most_pages=10)
    send(affinity, "a", *(key(i) for i in range(100)))
    assert sum(affinity.num_held(key(i), "a") for i in range(100)) == 10
    assert affinity.num_held(key(99), "a")


def pages(body, authorization=b""):
    return route_key(body, authorization).pages


def test_equal_beginnings_have_equal_pages():
    text = "It was late in the evening when the letter came. " * 8
    one, two = pages({"prompt": text + "She opened it. " * 10}), pages({"prompt": text + "He burnt it at once. " * 10})
    common = len(text) // 64
    assert len(one) == (len(text) + 150) // 64 > common and one[:common] == two[:common]
    assert not {*one[common:]} & {*two}
    ids = list(range(40))
    assert pages({"prompt": ids}) == pages({"token_ids": ids}) == pages({"prompt": [ids, [1]]})
    assert len(pages({"prompt": ids})) == 2
    turns = [{"role": "system", "content": text}, {"role": "user", "content": "What came?"}]
    chat, longer = pages({"messages": turns}), pages({"messages": [*turns, {"role": "assistant", "content": text}]})
    assert chat and longer[: len(chat)] == chat


def test_keys_and_salts_share_no_pages():
    body = {"prompt": "x" * 200, "prompt_cache_key": "task"}
    keys = [
        route_key(body),
        route_key(body, b"Bearer 1"),
        route_key(body, b"Bearer 2"),
        route_key({**body, "cache_salt": "s"}),
    ]
    assert len({one.pages[0] for one in keys}) == len({one.group for one in keys}) == 4


@pytest.mark.parametrize("body", [None, [], {}, {"prompt": 5}, {"prompt": []}, {"prompt": [True]}, {"messages": 3}])
def test_what_is_no_request_has_a_key_too(body):
    assert isinstance(route_key(body), RouteKey)


def test_the_route_key_names_pages_as_the_cache_does():
    from outdraft.cache.page_events import page_hash, root_hash

    ids = list(range(100, 140))
    first = page_hash(root_hash(None), ids[:16])
    assert pages({"token_ids": ids}) == (first, page_hash(first, ids[16:32]))
