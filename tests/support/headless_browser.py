"""Headless Chromium, driven over a pipe by its DevTools protocol: JSON messages, each ended by a zero byte.

No port, no driver and no library: the browser reads commands from descriptor 3 and writes answers and events to 4. It
has no network beyond what the page under test asks for, and every request of that is recorded.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from support.waits import HANG_S

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One page of one browser. Use as a context; `requests` and `complaints` are of the last page opened."""

    def __init__(self) -> None:
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--no-first-run",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
            f"--user-data-dir={self._home.name}",
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, str(commands), str(answers), str(PROGRAM), *options],
            pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._pending = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._loaded = False

    def __enter__(self) -> Browser:
        try:
            target = self.command("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Network", "Log", "Runtime"):
                self.command(f"{domain}.enable")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._write)
        os.close(self._read)
        self._process.terminate()
        self._process.wait(timeout=HANG_S)
        self._home.cleanup()

    def open(self, url: str) -> None:
        self.requests.clear()
        self.complaints.clear()
        self._loaded = False
        self.command("Page.navigate", url=url)
        while not self._loaded:
            self._take(self._receive())

    def show(self, width: int, height: int = 900, *, scheme: str = "light", medium: str = "") -> None:
        """As if on a screen of that size, whose owner prefers light or dark."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme_wanted = {"name": "prefers-color-scheme", "value": scheme}
        self.command("Emulation.setEmulatedMedia", media=medium, features=[scheme_wanted])

    def evaluate(self, expression: str) -> Any:
        answer = self.command("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise ValueError(answer["exceptionDetails"]["text"])
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Until the expression is true; the page looks again at each of its frames."""
        look = f"const look = () => ({condition}) ? done(true) : requestAnimationFrame(look); look();"
        self.command("Runtime.evaluate", expression=f"new Promise(done => {{ {look} }})", awaitPromise=True)

    def command(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise ValueError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._take(answer)

    def _take(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(params["entry"]["text"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(params))
            case "Page.loadEventFired":
                self._loaded = True

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            ready, _, _ = select.select([self._read], [], [], HANG_S)
            got = os.read(self._read, 1 << 20) if ready else b""
            if not got:
                raise TimeoutError("the browser does not answer")
            self._pending += got
        message, _, self._pending = self._pending.partition(b"\0")
        decoded: dict[str, Any] = json.loads(message)
        return decoded


def url_of(path: Path) -> str:
    return path.resolve().as_uri()


_LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for place, end in zip((3, 4), ends):
    os.dup2(end, place)
    os.close(end)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Puts the two ends where the browser looks for them, wherever they were."""
