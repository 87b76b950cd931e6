"""The console's files: a page needs nothing else, and contains no inline script or style."""

import re
from pathlib import Path

import pytest

from runtime.console.pages import FOLDER, PREFIX, pages
from runtime.http.server import Answer

ROUTES = pages()
SCRIPTS = sorted(FOLDER.glob("*.js"))


async def get(path: str) -> Answer:
    answer = await ROUTES["GET", path](None)
    assert isinstance(answer, Answer)
    return answer


async def test_every_file_has_a_route_a_kind_and_its_rules() -> None:
    files = [path for path in FOLDER.iterdir() if path.suffix != ".md"]
    assert len(files) >= 10
    for path in files:
        name = "" if path.name == "index.html" else path.name
        answer = await get(PREFIX + name)
        assert answer.body == path.read_bytes()
        headers = dict(answer.headers)
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Cache-Control"] == "no-cache"
    assert (await get(PREFIX)).content_type == "text/html; charset=utf-8"
    assert (await get(f"{PREFIX}main.js")).content_type.startswith("text/javascript")


@pytest.mark.parametrize("path", ["/", "/console"])
async def test_who_asks_for_nothing_gets_the_page(path: str) -> None:
    answer = await get(path)
    assert (answer.status, dict(answer.headers)["Location"]) == (302, "/console/")


def test_nothing_else_of_the_disk_is_served(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<!doctype html>")
    (tmp_path / "secret.toml").write_text("x = 1")
    assert pages(tmp_path).keys() == {("GET", "/console/"), ("GET", "/"), ("GET", "/console")}


def test_the_page_asks_nobody_else_and_has_nothing_inline() -> None:
    """What the policy forbids would fail silently for anybody who does not look at the browser's
    log."""
    for path in FOLDER.iterdir():
        text = path.read_text(encoding="utf-8")
        addresses = set(re.findall(r"https?://[^\s\"'`$]+", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}, path.name
    for path in FOLDER.glob("*.html"):
        page = path.read_text(encoding="utf-8")
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script>|javascript:", page)
        for name in re.findall(r"(?:src|href)=\"([^\"#]+)\"", page):
            assert ("GET", PREFIX + name) in ROUTES


def test_names_of_users_only_ever_become_text() -> None:
    for path in SCRIPTS:
        text = path.read_text(encoding="utf-8")
        ways = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
        assert not re.search(ways, text), path.name
        for name in re.findall(r"from \"\./([\w.]+)\"", text):
            assert (FOLDER / name).is_file(), f"{path.name} needs {name}"


def test_what_the_page_looks_for_is_there() -> None:
    made = {"move-to"}
    ids: list[str] = []
    for page in sorted(FOLDER.glob("*.html")):
        own = re.findall(r"\bid=\"([\w-]+)\"", page.read_text(encoding="utf-8"))
        assert len(own) == len(set(own)), page.name
        ids += own
    for path in SCRIPTS:
        for wanted in re.findall(r"byId\(\"([\w-]+)\"\)", path.read_text(encoding="utf-8")):
            assert wanted in {*ids, *made}, f"{path.name}: #{wanted}"
    index = (FOLDER / "index.html").read_text(encoding="utf-8")
    for target in re.findall(r"href=\"#([\w-]+)\"", index):
        assert target in ids


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it: from 1 to 21."""

    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(scheme: str) -> None:
    """4.5 for text, 3 for what shows where a control is."""
    style = (FOLDER / "console.css").read_text(encoding="utf-8")
    first, second = (block for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL))
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", first))
    if scheme == "dark":
        colours |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", second))
    grounds = ("page", "surface", "sunken", "bad-surface", "wait-surface")
    pairs = [("text", ground) for ground in grounds]
    pairs += [("quiet", ground) for ground in ("page", "surface", "sunken")]
    pairs += [(name, "surface") for name in ("accent", "good", "bad", "wait")]
    pairs += [("bad", "bad-surface"), ("wait", "wait-surface"), ("on-accent", "accent")]
    pairs += [("page", "text"), *(("on-node", f"c{number}") for number in range(10))]
    for ink, ground in pairs:
        assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    for ground in ("surface", "page"):
        assert contrast(colours["strong-line"], colours[ground]) >= 3, ground
