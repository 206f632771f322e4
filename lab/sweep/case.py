"""One case of a sweep, and how it ended.

accepted   the value or the file was good, and the work was done
refused    an `OutdraftError`, or exit code 2 of a command
foreign    any other exception, also one that the engine survived: it logs what broke a drafter
hang       no end within the limit
crash      the process died
"""

import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from lab.sweep.survived import Survived, last_lines
from outdraft.options.errors import DecodingError, OutdraftError

GOOD = ("accepted", "refused")


class Overtime(BaseException):
    """The time of a case is over. No part of outdraft catches it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is tried. `name` says it well enough to do it again by hand."""

    name: str
    run: Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How case `number` ended, and the message of what was raised."""

    number: int
    name: str
    end: str
    said: str = ""
    where: str = ""  # of a foreign error: the last lines of its traceback

    @property
    def is_good(self) -> bool:
        """Whether this is one of the two right ends."""
        return self.end in GOOD

    def to_json(self) -> dict[str, Any]:
        """As it stands in a journal."""
        return asdict(self)


def judge(number: int, case: Case) -> Verdict:
    """Run a case and say how it ended."""
    end, said, where = "accepted", "", ""
    survived = Survived()
    try:
        with survived:
            case.run()
    except DecodingError as error:  # no refusal: something broke in mid-request
        end, said = "foreign", str(error)
    except OutdraftError as error:
        end, said = "refused", str(error)
    except Overtime:
        end, where = "hang", last_lines(traceback.format_exc())
    except BaseException as error:  # whatever it is, it is the finding
        end, said, where = "foreign", f"{type(error).__name__}: {error}", last_lines(traceback.format_exc())
    if survived.broke and end in GOOD:
        end, said, where = "foreign", f"survived: {survived.broke[0]!r}", survived.where
    return Verdict(number=number, name=case.name, end=end, said=said[:500], where=where)
