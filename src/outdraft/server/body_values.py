"""How many values a body may hold: a reader of JSON makes an object of each, and no other thread runs meanwhile.

Four megabytes of text are read in milliseconds; four megabytes of small tables and lists take a second. They are
counted before anything is read, by the signs that stand between them, outside of texts.
"""

from outdraft.server.errors import ApiError

MOST_VALUES = 131_072  # of lists and tables together; or twice the context, where that is more
MOST_TABLES = 32_768  # members of tables, and lists, each
_PIECE = 1 << 16  # bytes that are looked at before other threads may have their turn


def seems_large(body: bytes, most: int = MOST_VALUES) -> bool:
    """Whether it must be counted, as few bodies must: its texts may have all the signs."""
    return body.count(b",") >= most or body.count(b":") > MOST_TABLES or body.count(b"[") > MOST_TABLES


def check_values(body: bytes, most: int = MOST_VALUES) -> None:
    """Raise `ApiError` for more than `most` values, or more than `MOST_TABLES` members or lists."""
    bare = body.replace(rb"\\", b"").replace(rb"\"", b"")
    values, members, lists, is_text = 1, 0, 0, False
    for at in range(0, len(bare), _PIECE):
        parts = bare[at : at + _PIECE].split(b'"')
        for outside in parts[is_text::2]:
            values += outside.count(b",")
            members += outside.count(b":")
            lists += outside.count(b"[")
        is_text ^= len(parts) % 2 == 0
        for count, limit, told in (
            (values, most, "values"), (members, MOST_TABLES, "members of tables"), (lists, MOST_TABLES, "lists"),
        ):  # fmt: skip
            if count > limit:
                raise ApiError(400, f"the body holds more than {limit:,} {told}, and no more are taken: send less",
                               code="too_many_values")  # fmt: skip
