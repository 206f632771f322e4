"""Ways to damage a file, by dice: of its bytes, or of the document that a JSON file holds.

Data in: bytes; data out: other bytes, and what was done to them in words. `change_in_place` is for a file that is open:
it stays the same file.
"""

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

Damage = Callable[[bytes, Random], tuple[str, bytes]]
HUGE = (2**31 - 1, 2**31, 2**40, 2**63 - 1, 2**64 - 1, 10**30)
STRANGE: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    3,
    *HUGE,
    -(2**40),
    0.5,
    -1.5,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\ud800",
    "é",
    [],
    [1],
    [[]],
    ["x"],
    [None],
    {},
    {"x": 1},
    {"type": None},
    "x" * 5000,
)


def damage_bytes(data: bytes, dice: Random) -> tuple[str, bytes]:
    """One of the kinds below; most of them hit the first few kilobytes, where formats keep what they claim."""
    return dice.choice(_OF_BYTES)(data, dice)


def damage_json(data: bytes, dice: Random) -> tuple[str, bytes]:
    """A value replaced, a key deleted, a key added, two values swapped; now and then the bytes themselves."""
    if dice.random() < 0.2:
        return damage_bytes(data, dice)
    document = json.loads(data)
    places = list(_places(document))
    holder, key = dice.choice(places)
    kind = dice.choice(("replace", "replace", "replace", "delete", "rename", "swap", "number"))
    told = f"{kind} {key!r}"
    if kind == "delete":
        del holder[key]
    elif kind == "rename" and isinstance(holder, dict):
        holder[f"{key}_"] = holder.pop(key)
    elif kind == "swap":
        other, other_key = dice.choice(places)
        holder[key], other[other_key] = other[other_key], holder[key]
    elif kind == "number":
        numbers = [(h, k) for h, k in places if isinstance(h[k], int | float) and not isinstance(h[k], bool)]
        if numbers:
            holder, key = dice.choice(numbers)
            holder[key] = dice.choice([one for one in STRANGE if isinstance(one, int | float)])
            told = f"number {key!r} = {holder[key]!r:.40}"
    else:
        holder[key] = dice.choice(STRANGE)
        told = f"replace {key!r} = {holder[key]!r:.40}"
    return told, json.dumps(document).encode()


def change_in_place(data: bytes, dice: Random) -> tuple[str, Callable[[Path], None]]:
    """What is done to the file that holds `data`: other bytes in it, an end before its end, or nothing left of it."""
    if dice.random() < 0.5:
        told, made = _wipe(data, dice) if dice.random() < 0.5 else _flip(data, dice)
    else:
        made = data[: dice.choice((0, 8, 4096, len(data) // 2, max(0, len(data) - 1)))]
        told = f"shortened to {len(made)} bytes"

    def change(path: Path) -> None:
        with path.open("r+b") as file:
            file.write(made)
            file.truncate()

    return told, change


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every holder and key; of a long list or table a few only, or vocabularies would take all hits."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    for key in keys if len(keys) < 40 else [*keys[:8], *keys[-8:]]:
        yield value, key
        yield from _places(value[key])


def _at(data: bytes, dice: Random) -> int:
    near = min(len(data), dice.choice((64, 512, 8192, len(data))))
    return dice.randrange(max(1, near))


def _flip(data: bytes, dice: Random) -> tuple[str, bytes]:
    made, count = bytearray(data), dice.choice((1, 1, 3, 20))
    spots = [_at(data, dice) for _ in range(count)]
    for spot in spots:
        if made:
            made[spot] ^= 1 << dice.randrange(8)
    return f"flip bits at {spots[:3]}", bytes(made)


def _cut(data: bytes, dice: Random) -> tuple[str, bytes]:
    end = dice.choice((0, 1, 7, 8, len(data) // 2, max(0, len(data) - 1), _at(data, dice)))
    return f"cut at {end}", data[:end]


def _lengthen(data: bytes, dice: Random) -> tuple[str, bytes]:
    more = dice.choice((b"\0", b"x" * 100, data[:64]))
    return f"{len(more)} bytes more", data + more


def _number(data: bytes, dice: Random) -> tuple[str, bytes]:
    """A length or a count, perhaps: small little-endian numbers are likely ones."""
    width = dice.choice((4, 8))
    form = "<I" if width == 4 else "<Q"
    spots = [at for at in range(0, min(len(data) - width, 4096), 4) if struct.unpack_from(form, data, at)[0] < 2**20]
    at = dice.choice(spots) if spots else 0
    wanted = dice.choice((0, 1, 255, 2**16, *HUGE[:5])) & (2 ** (8 * width) - 1)
    return f"{wanted} at {at} in {width} bytes", data[:at] + struct.pack(form, wanted) + data[at + width :]


def _swap(data: bytes, dice: Random) -> tuple[str, bytes]:
    width = dice.choice((4, 8, 64))
    a, b = sorted((_at(data, dice), _at(data, dice)))
    if a + width > b:
        return _flip(data, dice)
    made = data[:a] + data[b : b + width] + data[a + width : b] + data[a : a + width] + data[b + width :]
    return f"swap {width} bytes at {a} and {b}", made


def _wipe(data: bytes, dice: Random) -> tuple[str, bytes]:
    at, width, filler = _at(data, dice), dice.choice((1, 8, 100, 4096)), dice.choice((b"\0", b"\xff", b"9"))
    width = min(width, len(data) - at)
    return f"{width} times {filler!r} at {at}", data[:at] + filler * width + data[at + width :]


def _remove(data: bytes, dice: Random) -> tuple[str, bytes]:
    at, width = _at(data, dice), dice.choice((1, 4, 100))
    return f"{width} bytes less at {at}", data[:at] + data[at + width :]


_OF_BYTES: tuple[Damage, ...] = (_flip, _flip, _cut, _lengthen, _number, _number, _number, _swap, _wipe, _remove)
