"""Which replica a request goes to: where its prefix and its drafter's memory are warm, unless others have less to do.

    1. no replica gets a request while it has `most_ahead` more under way than the one with the least
    2. of the others, the one that holds the most pages of the prompt's beginning
    3. then the one where the last request of its group went, whose drafter has learnt from answers like this one
    4. then the one with the least to do
    5. then one that the beginning of the prompt alone decides, so that several routers decide alike

It remembers where it has sent what, as far as `most_pages`; what a replica reports of its cache can be passed to it
(`stored`, `removed`). Prefix affinity with a bound on imbalance: Srivatsa et al., "Preble", 2024,
https://arxiv.org/abs/2407.00023. Data in: keys and the names of replicas; data out: their order.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from hashlib import blake2b

from outdraft.server.fleet.route_key import RouteKey


class Affinity:
    """One router's memory. `sent` and `done` belong to every request.

    `most_ahead`: requests that a warm replica may have under way beyond the one with the least. `most_pages`: pages and
    groups that are remembered, for all replicas together.
    """

    def __init__(self, *, most_ahead: int = 4, most_pages: int = 200_000) -> None:
        self._most_ahead, self._most_pages = most_ahead, most_pages
        self._holders: OrderedDict[int, dict[str, None]] = OrderedDict()  # of a page or a group, the latest one last
        self._under_way: Counter[str] = Counter()
        self._known: set[str] = set()  # replicas that hold or do anything

    def rank(self, key: RouteKey, replicas: Seq[str]) -> list[str]:
        """The replicas, the best one first."""
        least = min((self._under_way[one] for one in replicas), default=0)
        home = self._home(key.group, replicas)
        start = key.pages[0] if key.pages else key.group

        def order(one: str) -> tuple[bool, int, bool, int, int]:
            load = self._under_way[one]
            is_ahead = load - least >= self._most_ahead
            return is_ahead, -self.num_held(key, one), one != home, load, _lot(start, one)

        return sorted(replicas, key=order)

    def num_held(self, key: RouteKey, replica: str) -> int:
        """Pages of the prompt's beginning that the replica is believed to hold."""
        for i, page in enumerate(key.pages):
            if replica not in self._holders.get(page, ()):
                return i
        return len(key.pages)

    def sent(self, key: RouteKey, replica: str) -> None:
        """The request went there, which will hold its prompt."""
        self._under_way[replica] += 1
        self.stored(replica, [*key.pages, *([] if key.group is None else [key.group])])

    def done(self, replica: str) -> None:
        if self._under_way[replica]:
            self._under_way[replica] -= 1

    def stored(self, replica: str, pages: Iterable[int]) -> None:
        self._known.add(replica)
        for page in pages:
            holders = self._holders.setdefault(page, {})
            holders.pop(replica, None)
            holders[replica] = None
            self._holders.move_to_end(page)
        while len(self._holders) > self._most_pages:
            self._holders.popitem(last=False)

    def removed(self, replica: str, pages: Iterable[int]) -> None:
        for page in pages:
            if (holders := self._holders.get(page)) is not None:
                holders.pop(replica, None)
                if not holders:
                    del self._holders[page]

    def keep_only(self, replicas: Iterable[str]) -> None:
        """These are all that there are; what the others held is lost with them."""
        for replica in self._known - {*replicas}:
            self._known.discard(replica)
            del self._under_way[replica]
            self.removed(replica, list(self._holders))

    def _home(self, group: int | None, replicas: Seq[str]) -> str | None:
        holders = () if group is None else self._holders.get(group, ())
        return next((one for one in reversed([*holders]) if one in replicas), None)


def _lot(start: int | None, replica: str) -> int:
    """Rendezvous hashing: each beginning has an order of replicas of its own, which loses only those that go.

    Thaler and Ravishankar, 1998, https://doi.org/10.1109/90.663936
    """
    return int.from_bytes(blake2b(f"{start} {replica}".encode(), digest_size=8).digest(), "little")
