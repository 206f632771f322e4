"""Letters of a regex, in Rust's syntax, with its repetitions multiplied out.

    ab{3}         1 + 3          (a|bc){2,10}     10 * (1 + 2)          (x{100}){1000}     100 * 1000

What may be repeated without end counts once, or as often as it must come. What is no regex is the library's to refuse.
"""

import re

_ATOM = re.compile(
    r"\\[pPxuU]\{[^}]{0,64}\}|\\(?s:.)|\(\?(?:P?<\w+>|[a-zA-Z-]*[:)])|(?s:.)"  # one letter, or what stands for one
)
_REPEATED = re.compile(r"\{\s*+(\d*+)\s*+,?+\s*+(\d*+)\s*+\}")  # without a step back


def count_regex(pattern: str) -> int:
    """At least 1, and linear in the pattern's length."""
    sums, products, last = [0], [0], 0  # of the groups that are open: earlier alternatives, this one, its last part
    place = 0
    while place < len(pattern):
        if (repeated := _REPEATED.match(pattern, place)) and place:
            times = max(1, *(int(number[:18] or 0) for number in repeated.groups()))
            products[-1] += last * (times - 1)
            last *= times
            place = repeated.end()
            continue
        found = _ATOM.match(pattern, place)
        assert found is not None
        atom, place = found[0], found.end()
        if atom == "[":
            place = _end_of_class(pattern, place)
        if atom.startswith("(") and not atom.endswith(")"):
            sums.append(0)
            products.append(0)
        elif atom == ")" and len(sums) > 1:
            last = max(1, sums.pop() + products.pop())
            products[-1] += last
        elif atom == "|":
            sums[-1] += products[-1]
            products[-1] = 0
        elif atom not in ("*", "+", "?", "^", "$") and not atom.startswith("(?"):
            last = 1
            products[-1] += 1
    return max(1, sum(sums) + sum(products))


def _end_of_class(pattern: str, place: int) -> int:
    """Where a class of letters ends, that begins before `place`; classes may stand in classes."""
    depth = 1
    if pattern.startswith("^", place):
        place += 1
    if pattern.startswith("]", place):
        place += 1
    while place < len(pattern) and depth:
        match pattern[place]:
            case "\\":
                place += 1
            case "[":
                depth += 1
            case "]":
                depth -= 1
        place += 1
    return place
