"""`python tools/changelog.py`: moves changelog.d into the section of CHANGELOG.md for this version.

A change comes with `changelog.d/TOPIC.KIND.md`, a few lines for users. `make changelog` puts the
text of each below its kind, and removes the file. Run again before a release, it adds what has come
since: the section is the version's as long as `wire/software.py` says that version.
"""

import argparse
import re
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Final

KINDS: Final = {"added": "Added", "changed": "Changed", "fixed": "Fixed", "removed": "Removed"}
"""The last part of a file's name -> the heading, in the order of the page."""
HEAD: Final = "# Changes\n\nWhat users notice, by version; the newest first.\n"
LIST: Final = re.compile(r"^[-|]", re.MULTILINE)
"""A paragraph with a list or a table keeps its lines."""
WIDTH: Final = 116
"""Of an item's lines, which are indented."""
SECTION: Final = re.compile(r"^## (\S+)\n", re.MULTILINE)
HEADING: Final = re.compile(r"^### (\w+)\n", re.MULTILINE)


class ChangelogError(ValueError):
    """A file of changelog.d has no kind, or nothing in it; the message names it."""


def entries(folder: Path) -> dict[str, list[str]]:
    """Heading -> what is to be below it, in the order of the files' names.

    Raises:
        ChangelogError: a file is not like TOPIC.KIND.md, or is empty.
    """
    found: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*")):
        _, _, kind = path.stem.rpartition(".")
        text = path.read_text(encoding="utf-8").strip()
        if path.suffix != ".md" or kind not in KINDS or not text:
            kinds = ", ".join(KINDS)
            raise ChangelogError(f"{path.name}: expected TOPIC.KIND.md with a text; KIND: {kinds}")
        found.setdefault(KINDS[kind], []).append(entry(text))
    return found


def entry(text: str) -> str:
    """An item of the page's list; links lead from the page, which is one folder higher."""
    paragraphs = text.replace("](../", "](").split("\n\n")
    filled = (
        one if LIST.search(one) else textwrap.fill(one, WIDTH, break_on_hyphens=False)
        for one in paragraphs
    )
    return "- " + textwrap.indent("\n\n".join(filled), "  ").lstrip()


def merged(page: str, version: str, new: Mapping[str, list[str]]) -> str:
    """The page with these entries in the version's section, which is the first one.

    Raises:
        ChangelogError: the version has a section that is not the first: it was released.
    """
    head, *parts = SECTION.split(page or HEAD)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    if version in list(sections)[1:]:
        raise ChangelogError(f"{version} is released; the next version is in wire/software.py")
    _, *old = HEADING.split(sections.pop(version, ""))
    listed = dict(zip(old[::2], (text.strip() for text in old[1::2]), strict=True))
    for heading, texts in new.items():
        listed[heading] = "\n".join([*filter(None, [listed.get(heading)]), *texts])
    body = [
        f"### {heading}\n\n{listed[heading]}\n" for heading in KINDS.values() if heading in listed
    ]
    rest = [f"## {name}\n\n{text.strip()}\n" for name, text in sections.items()]
    return "\n".join([head.rstrip() + "\n", f"## {version}\n", *body, *rest])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--tree", type=Path, default=Path(__file__).parent.parent)
    tree: Path = parser.parse_args(arguments).tree
    page, folder = tree / "CHANGELOG.md", tree / "changelog.d"
    source = (tree / "wire" / "software.py").read_text(encoding="utf-8")
    version = re.findall(r'^VERSION: Final = "(.+)"$', source, re.MULTILINE)[0]
    try:
        new = entries(folder)
        text = page.read_text(encoding="utf-8") if page.exists() else ""
        page.write_text(merged(text, version, new), encoding="utf-8")
    except ChangelogError as error:
        print(f"changelog: {error}", file=sys.stderr)
        return 1
    for path in folder.glob("*"):
        path.unlink()
    print(f"{sum(map(len, new.values()))} entries added to {version}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
