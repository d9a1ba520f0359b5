"""Headless Chromium over the DevTools protocol's pipe: the standard library alone, no port, no driver program.

https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--mute-audio",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--hide-scrollbars", "--remote-debugging-pipe", "--force-color-profile=srgb",
)  # fmt: skip
LAUNCH = "import os, sys; os.dup2({i}, 3); os.dup2({o}, 4); os.execv(sys.argv[1], sys.argv[1:])"
HOLDS = "(() => { try { const v = %s; return v instanceof Node || v; } catch (e) { return false; } })()"
MIDDLE = """(() => {
    const found = document.querySelector(%s);
    found.scrollIntoView({block: 'center'});
    const box = found.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
})()"""
ANSWER_S = 30.0


class BrowserError(Exception):
    """The browser refused a command, went away, or the page threw."""


def find_chromium() -> str | None:
    """ROPEWAY_CHROMIUM, or what the PATH has."""
    named = os.environ.get("ROPEWAY_CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


class Pipe:
    """Messages to and from one browser process: JSON, each ended by a zero byte."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._out = to_browser
        self._in = from_browser
        self._rest = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, params: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        """Sends a command and waits for its answer; events that come meanwhile are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_S
        while True:
            answer = self._read(deadline, method)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error'].get('message')}")
                result: dict[str, Any] = answer["result"]
                return result
            if "method" in answer:
                self.events.append(answer)

    def _read(self, deadline: float, method: str) -> dict[str, Any]:
        while b"\0" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                raise BrowserError(f"{method}: no answer in {ANSWER_S:.0f} s")
            piece = os.read(self._in, 1 << 20)
            if not piece:
                raise BrowserError(f"{method}: the browser has gone")
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message


class Tab:
    """One page."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        context = pipe.call("Target.createBrowserContext", {})["browserContextId"]
        target = pipe.call("Target.createTarget", {"url": "about:blank", "browserContextId": context})["targetId"]
        self._session: str = pipe.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        self._context = context
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A DevTools command."""
        return self._pipe.call(method, params, self._session)

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression (awaited); raises BrowserError where it throws."""
        reply = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in reply:
            thrown = reply["exceptionDetails"]
            raise BrowserError(thrown.get("exception", {}).get("description") or thrown.get("text"))
        return reply["result"].get("value")

    def until(self, condition: str, within_s: float = 20.0) -> Any:
        """Waits until a JavaScript expression is true and gives its value."""
        # Asked from outside, so that a page whose timers are changed or that navigates is waited for as well.
        deadline = time.monotonic() + within_s
        while True:
            value = self.run(HOLDS % condition)
            if value:
                return value
            if time.monotonic() > deadline:
                state = self.run("document.body ? document.body.innerText.slice(0, 1500) : ''")
                raise BrowserError(f"not true within {within_s:.0f} s: {condition}\nthe page says:\n{state}")
            self.run("new Promise((done) => setTimeout(done, 15))")

    def size(self, width: int, height: int, scale: float = 1.0, mobile: bool = False) -> None:
        """The window's size in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile
        )

    def prefer(self, scheme: str = "light", motion: str = "no-preference") -> None:
        """What the reader prefers."""
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": motion},
        ]
        self.call("Emulation.setEmulatedMedia", features=features)

    def hurry(self, times: int) -> None:
        """Makes the timers of every page loaded from now on so many times faster, so that no test waits long."""
        source = (
            f"{{ const later = setTimeout.bind(window), often = setInterval.bind(window);"
            f" window.setTimeout = (f, ms, ...a) => later(f, (ms || 0) / {times}, ...a);"
            f" window.setInterval = (f, ms, ...a) => often(f, (ms || 0) / {times}, ...a); }}"
        )
        self.call("Page.addScriptToEvaluateOnNewDocument", source=source)

    def open(self, url: str) -> None:
        """Goes to a page and waits until it has been read."""
        self.call("Page.navigate", url=url)
        self.until(f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'")

    def type(self, text: str) -> None:
        """Text into whatever has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, shift: bool = False) -> None:
        """One key, by its DevTools name: Enter, Tab, Escape, ArrowRight, ..."""
        codes = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowRight": 39, "ArrowDown": 40, " ": 32}
        params: dict[str, Any] = {"key": key, "code": "Space" if key == " " else key, "modifiers": 8 if shift else 0}
        params["windowsVirtualKeyCode"] = codes[key]
        typed = {"Enter": "\r", " ": " "}.get(key)
        self.call("Input.dispatchKeyEvent", type="keyDown", **params, **({"text": typed} if typed else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **params)

    def click(self, selector: str) -> None:
        """The middle of an element, by the mouse."""
        x, y = self.run(MIDDLE % json.dumps(selector))
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, path: Path, whole: bool = False, clip: tuple[float, float, float, float] | None = None) -> None:
        """A PNG of what is seen, of the whole page, or of a part of it (x, y, width, height)."""
        params: dict[str, Any] = {"format": "png", "captureBeyondViewport": whole or clip is not None}
        if clip:
            params["clip"] = dict(zip(("x", "y", "width", "height"), clip, strict=True)) | {"scale": 1}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **params)["data"]))

    def complaints(self) -> list[str]:
        """What the browser had to complain about since the last call: exceptions, refused styles, console errors."""
        self.run("1")
        mine = [event for event in self._pipe.events if event.get("sessionId") == self._session]
        self._pipe.events = [event for event in self._pipe.events if event.get("sessionId") != self._session]
        found = []
        for event in mine:
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                found.append(details.get("exception", {}).get("description") or details["text"])
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                if params["entry"]["source"] != "network":
                    found.append(params["entry"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append(json.dumps([each.get("value") for each in params["args"]]))
        return found

    def close(self) -> None:
        """Ends the page and everything it kept."""
        self._pipe.call("Target.disposeBrowserContext", {"browserContextId": self._context})


@contextmanager
def chromium(path: str) -> Iterator[Pipe]:
    """A browser with a profile of its own; ends with the block."""
    with tempfile.TemporaryDirectory(prefix="ropeway-chromium-", ignore_cleanup_errors=True) as profile:
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for pair in (os.pipe(), os.pipe()) for end in pair]
        command_in, command_out, event_in, event_out = ends
        launch = LAUNCH.format(i=command_in, o=event_out)
        process = subprocess.Popen(
            [sys.executable, "-c", launch, path, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(command_in, event_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )
        os.close(command_in)
        os.close(event_out)
        pipe = Pipe(command_out, event_in)
        try:
            yield pipe
            pipe.call("Browser.close", {})
            process.wait(10)
        finally:
            os.close(command_out)
            os.close(event_in)
            if process.poll() is None:
                process.kill()
                process.wait()
