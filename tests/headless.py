"""A headless Chromium, driven by its DevTools protocol over a pair of pipes: no driver and no package is needed.

https://chromedevtools.github.io/devtools-protocol/ ; messages are JSON, each ended by a zero byte.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--disable-dev-shm-usage",
)


def find() -> str | None:
    """Where a browser is, if there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One tab. Waits at most `patience` seconds for anything."""

    def __init__(self, read: int, write: int, patience: float = 60.0) -> None:
        self._read, self._write, self._patience = read, write, patience
        self._left, self._num, self._session = b"", 0, None
        self.problems: list[str] = []  # errors of scripts and what the page's policy refused
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command's result."""
        self._num += 1
        asked = {"id": self._num, "method": method, "params": params}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._write, json.dumps(asked).encode() + b"\0")
        while True:
            told = self._message()
            if told.get("id") == self._num:
                assert "error" not in told, f"{method}: {told['error']}"
                return told["result"]
            self._note(told)

    def open(self, url: str) -> None:
        """Load a page."""
        self.call("Page.navigate", url=url)
        self.wait(f"document.readyState === 'complete' && location.href.startsWith({json.dumps(url)})")

    def ask(self, script: str) -> Any:
        """The value of an expression; a promise's, once it has one."""
        told = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in told, f"{script}: {told['exceptionDetails']}"
        return told["result"].get("value")

    def wait(self, script: str) -> Any:
        """Until the expression is true."""
        end = time.monotonic() + self._patience
        while not (found := self.ask(script)):
            assert time.monotonic() < end, f"this did not come true: {script}; the page says {self.text()!r}"
            time.sleep(0.05)
        return found

    def text(self, selector: str = "body") -> str:
        """What a person reads there."""
        return str(self.ask(f"document.querySelector({json.dumps(selector)}).innerText"))

    def fill(self, selector: str, value: str) -> None:
        """As if typed into a field, or chosen."""
        self.ask(
            f"(() => {{ const field = document.querySelector({json.dumps(selector)}); "
            f"field.value = {json.dumps(value)}; field.dispatchEvent(new Event('change')); }})()"
        )

    def click(self, selector: str) -> None:
        """A click."""
        self.ask(f"document.querySelector({json.dumps(selector)}).click()")

    def press(self, key: str, **more: Any) -> None:
        """A key on the element that has the focus."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, **more)

    def screenshot(self, path: Path, width: int, height: int, *, dark: bool = False) -> None:
        """A picture of the window at this size."""
        self.resize(width, height)
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=False)["data"]))

    def resize(self, width: int, height: int) -> None:
        """CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def _note(self, told: dict[str, Any]) -> None:
        params = told.get("params", {})
        if told.get("method") == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(params["exceptionDetails"]))
        if told.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(params["entry"]["text"])

    def _message(self) -> dict[str, Any]:
        end = time.monotonic() + self._patience
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser said nothing for too long"
            got = os.read(self._read, 1 << 20)
            assert got, "the browser has ended"
            self._left += got
        one, _, self._left = self._left.partition(b"\0")
        return json.loads(one)


@contextmanager
def browser(program: str, folder: Path) -> Iterator[Page]:
    """A browser with an empty profile in `folder`, ended when the block ends. It reads from 3 and writes to 4."""
    to_read, write = os.pipe()
    read, to_write = os.pipe()

    def place() -> None:
        high = (os.dup(to_read), os.dup(to_write))  # neither is 3 or 4 before both are copied
        os.dup2(high[0], 3)
        os.dup2(high[1], 4)

    process = subprocess.Popen(
        [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
        preexec_fn=place,
        close_fds=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(to_write)
    try:
        yield Page(read, write)
    finally:
        process.terminate()
        process.wait(20)
        os.close(read)
        os.close(write)
