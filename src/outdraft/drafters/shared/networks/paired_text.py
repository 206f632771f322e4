"""A text of which a drafter reads pairs: row i stands for what the target knew at i, and the token at i + 1.

    text    x0      x1      x2      x3(pending)
    rows    (0,x1)  (1,x2)  (2,x3)          first ... | read: in the draft's cache | wait for the next guess | end

It is the bookkeeping alone; what a drafter keeps of a row beside its token is its own affair.
"""

Salt = tuple[object, ...]


class PairedText:
    """Which rows of one sequence were read, and which wait."""

    __slots__ = ("first", "ids", "salt", "tokens")

    def __init__(self, first: int, salt: Salt | None = None) -> None:
        self.first = first  # position of the first row
        self.salt = salt  # texts of one salt share rows; None: it shares none
        self.ids: list[int] = []  # behind the rows in the cache
        self.tokens: list[int] = []  # behind the rows that wait

    @property
    def num_read(self) -> int:
        """Rows that the draft's cache holds."""
        return len(self.ids)

    @property
    def end(self) -> int:
        """Position after the last row known."""
        return self.first + self.num_read + len(self.tokens)

    @property
    def waiting(self) -> range:
        """Positions of the rows that wait."""
        return range(self.first + self.num_read, self.end)
