"""The console's static files: read once at the start, and served with their hash.

They are files of the repository: nothing is built, and nothing is loaded from other sites.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from runtime.http.guard import PAGE_HEADERS
from runtime.http.server import Answer, Route

FOLDER: Final = Path(__file__).parents[2] / "dashboards" / "console"
TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDEX: Final = "index.html"
PREFIX: Final = "/console/"


def pages(folder: Path = FOLDER) -> dict[tuple[str, str], Route]:
    """A route for each file; /console/ is the page itself, and / redirects there."""
    routes: dict[tuple[str, str], Route] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        kind = TYPES.get(path.suffix)
        if kind is not None:
            name = "" if path.name == INDEX else path.name
            routes["GET", PREFIX + name] = _file(path.read_bytes(), kind)
    for where in ("/", "/console"):
        routes["GET", where] = _redirect
    return routes


def _file(body: bytes, kind: str) -> Callable[[Any], Any]:
    tag = hashlib.sha256(body).hexdigest()[:16]
    headers = (*PAGE_HEADERS, ("Cache-Control", "no-cache"), ("ETag", f'"{tag}"'))
    answer = Answer(200, body, kind, headers)

    async def page(_query: Any) -> Answer:  # noqa: ANN401
        return answer

    return page


async def _redirect(_query: Any) -> Answer:  # noqa: ANN401
    return Answer(302, b"", headers=(("Location", PREFIX), ("Cache-Control", "no-store")))
