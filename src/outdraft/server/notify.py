"""Reports to systemd how the server is, where systemd has asked (`Type=notify`): READY=1, STOPPING=1.

https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
"""

import os
import socket
from contextlib import suppress


def tell_system(state: str) -> None:
    """One line to the socket that NOTIFY_SOCKET names; nothing where there is none."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@") or not hasattr(socket, "AF_UNIX"):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.connect(f"\0{address[1:]}" if address[0] == "@" else address)  # "@": a name that is no file
        line.sendall(state.encode())
