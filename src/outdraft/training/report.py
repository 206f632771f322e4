"""Progress lines on standard error, with the time of day."""

import sys
import time


def report(line: str) -> None:
    """Write one line of progress with the time of day."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()
