"""A headless Chromium, driven by the WebDriver protocol with only the standard library.

Debian's packages are `chromium` and `chromium-driver`. The browser keeps what the page logged and
requested; it is read at the end.
"""

import base64
import http.client
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cluster.spec import FREE_PORTS, is_free
from runtime.config.config import Address

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)
ASK_S = 60.0
STEP_S = 30.0
KEYS = {
    "Tab": "\ue004",
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "Space": " ",
    "End": "\ue010",
    "Home": "\ue011",
    "Left": "\ue012",
    "Up": "\ue013",
    "Right": "\ue014",
    "Down": "\ue015",
}
TABS_MAX = 60


class BrowserError(AssertionError):
    """The browser refused, or the awaited condition did not come true."""


class Browser:
    def __init__(self, port: int, profile: Path) -> None:
        self._port = port
        options = {
            "binary": CHROMIUM,
            "args": [*FLAGS, f"--user-data-dir={profile}"],
            "perfLoggingPrefs": {"enableNetwork": True},
        }
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        answer = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{answer['sessionId']}"
        self._requests: list[str] = []
        self._errors: list[str] = []

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ASK_S)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, body=data)
            answer = connection.getresponse()
            value = json.loads(answer.read())["value"]
        finally:
            connection.close()
        if answer.status != 200:
            raise BrowserError(f"{method} {path}: {value['error']}: {value['message'][:500]}")
        return value

    def _do(self, what: str, body: object) -> Any:
        return self._ask("POST", f"{self._session}/{what}", body)

    def close(self) -> None:
        self._ask("DELETE", self._session)

    # -- looking ------------------------------------------------------------------------------

    def open(self, url: str) -> None:
        self._do("url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:
        """The result of a function body that runs in the page."""
        return self._do("execute/sync", {"script": script, "args": list(arguments)})

    def until(self, what: str, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + STEP_S
        while not condition():
            if time.monotonic() > deadline:
                seen = self.run("return document.body.innerText")
                raise BrowserError(f"not within {STEP_S} s: {what}; the page says:\n{seen[:4000]}")
            time.sleep(0.05)

    def shape(self, width: int, height: int, *, dark: bool, calm: bool = False) -> None:
        """A screen of this size and colour scheme; below 500 px it is a phone."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self._cdp("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        motion = {"name": "prefers-reduced-motion", "value": "reduce" if calm else ""}
        self._cdp("Emulation.setEmulatedMedia", {"features": [scheme, motion]})

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """The visible part, or the whole page, as a PNG."""
        parameters: dict[str, Any] = {"format": "png"}
        if whole:
            width, height = self.run("return [innerWidth, document.documentElement.scrollHeight]")
            clip = {"x": 0, "y": 0, "width": width, "height": min(height, 8000), "scale": 1}
            parameters |= {"captureBeyondViewport": True, "clip": clip}
        data = self._cdp("Page.captureScreenshot", parameters)["data"]
        path.write_bytes(base64.b64decode(data))

    def _cdp(self, command: str, parameters: Mapping[str, object]) -> Any:
        return self._do("goog/cdp/execute", {"cmd": command, "params": parameters})

    # -- typing -------------------------------------------------------------------------------

    def press(self, *keys: str) -> None:
        strokes = []
        for key in keys:
            value = KEYS.get(key, key)
            strokes += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self._do("actions", {"actions": [{"type": "key", "id": "keys", "actions": strokes}]})

    def tab_to(self, selector: str) -> None:
        """Press Tab until the focus is there, as a user without a mouse does."""
        for _ in range(TABS_MAX):
            self.press("Tab")
            if self.run("return document.activeElement.matches(arguments[0])", selector):
                return
        raise BrowserError(f"{TABS_MAX} times Tab, and never at {selector}")

    def focused(self) -> str:
        text = self.run(
            "const e = document.activeElement; return e.getAttribute('aria-label') || e.innerText"
        )
        return str(text)

    # -- what the page reports ----------------------------------------------------------------

    def _logged(self, kind: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._do("se/log", {"type": kind})
        return rows

    def complaints(self) -> list[str]:
        """Errors and warnings of the page: from scripts, policies and requests."""
        for row in self._logged("browser"):
            if row["level"] in ("SEVERE", "WARNING"):
                self._errors.append(row["message"])
        return self._errors

    def origins(self) -> set[str]:
        """The origins that the page has requested anything from."""
        for row in self._logged("performance"):
            message = json.loads(row["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self._requests.append(message["params"]["request"]["url"])
        found = set()
        for url in self._requests:
            parts = urlsplit(url)
            if parts.scheme.startswith("http"):  # the browser's own first page has others
                found.add(f"{parts.scheme}://{parts.netloc}")
        return found


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser of its own, with a new profile; it ends with the block."""
    assert DRIVER is not None
    port = next(port for port in FREE_PORTS if is_free(Address("127.0.0.1", port)))
    with subprocess.Popen(
        [DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as driver:
        try:
            _until_up(port)
            page = Browser(port, folder / "profile")
            try:
                yield page
            finally:
                page.close()
        finally:
            driver.terminate()


def _until_up(port: int) -> None:
    deadline = time.monotonic() + STEP_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=STEP_S).close()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, "chromedriver does not listen"
            time.sleep(0.05)
        else:
            return
