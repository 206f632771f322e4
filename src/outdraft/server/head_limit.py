"""h11 reads HTTP, with an exact limit of a request's head: its own holds for heads that are incomplete alone."""

import h11

LONGEST_HEAD = 64 * 1024  # bytes of the request line and the headers, the empty line included


class HeadLimited(h11.Connection):
    """The server's end. `is_too_large`: it has met a head that is larger, and raised `h11.RemoteProtocolError`."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, LONGEST_HEAD)
        self.is_too_large = False

    def next_event(self) -> "h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]":
        before = len(self.trailing_data[0]) if self.their_state is h11.IDLE else None
        try:
            event = super().next_event()
        except h11.RemoteProtocolError:
            self.is_too_large = before is not None and before > LONGEST_HEAD
            raise
        if before is not None and isinstance(event, h11.Request):
            self.is_too_large = before - len(self.trailing_data[0]) > LONGEST_HEAD
            if self.is_too_large:
                raise h11.RemoteProtocolError("the head is too large", error_status_hint=431)
        return event
