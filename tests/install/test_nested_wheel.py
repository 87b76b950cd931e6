"""How the wheel's imports are rewritten, and what is refused."""

from pathlib import Path

import pytest

from tools.nested_wheel import CannotNestError, nest, nested, rewritten

ROOMS = ("wire", "cluster", "node")


def changed(text: str) -> str:
    return rewritten(text, "evenkeel", ROOMS, "somewhere.py")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from wire.codec import x\n", "from evenkeel._internal.wire.codec import x\n"),
        ("from wire import x as y\n", "from evenkeel._internal.wire import x as y\n"),
        (
            "from wire.a import (\n  x\n)\n",
            "from evenkeel._internal.wire.a import (\n  x\n)\n",
        ),
        ("import cluster\n", "from evenkeel._internal import cluster\n"),
        ("import node  # why\n", "from evenkeel._internal import node  # why\n"),
        ("if 1:\n    import node\n", "if 1:\n    from evenkeel._internal import node\n"),
        ("def f():\n\tfrom wire import x", "def f():\n\tfrom evenkeel._internal.wire import x"),
    ],
)
def test_an_import_of_a_room_leads_inside(before: str, after: str) -> None:
    assert changed(before) == after


@pytest.mark.parametrize(
    "text",
    [
        "import os, sys\n",
        "import wires\nfrom wireless import x\nfrom nodes.wire import x\n",
        "from evenkeel import Producer\n",
        "from . import wire\nfrom .wire import x\n",
        'text = """\nfrom wire import x\nimport cluster\n"""\n',
        "# from wire import x\nwire = 1\n",
    ],
)
def test_all_else_stays(text: str) -> None:
    assert changed(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "import wire.codec\n",
        "import cluster as c\n",
        "import os, cluster\n",
        "import cluster, os\n",
        "from  wire import x\n",
        "from wire \\\n    .codec import x\n",
        "import \\\n    cluster\n",
    ],
)
def test_what_cannot_be_rewritten_is_refused(text: str) -> None:
    """And never built with a name that the user's environment has no module for."""
    with pytest.raises(CannotNestError, match=r"somewhere\.py:1"):
        changed(text)


def test_the_commands_entry_point_is_renamed_like_an_import() -> None:
    assert nested("cluster.main:main", "evenkeel", ROOMS) == "evenkeel._internal.cluster.main:main"
    assert nested("clusters:main", "evenkeel", ROOMS) == "clusters:main"


def test_files_of_all_kinds_are_copied_and_caches_are_not(tmp_path: Path) -> None:
    for name in ("evenkeel/__init__.py", "evenkeel/py.typed", "wire/a/b.py", "wire/page.html"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "node.py").write_text("from wire.a import b\n")
    (tmp_path / "wire" / "__pycache__").mkdir()
    (tmp_path / "wire" / "__pycache__" / "b.pyc").write_text("")
    nest(tmp_path, "evenkeel", ("wire", "node"), tmp_path / "built")
    files = (path for path in (tmp_path / "built").rglob("*") if path.is_file())
    assert {path.relative_to(tmp_path / "built").as_posix() for path in files} == {
        "__init__.py",
        "py.typed",
        "_internal/__init__.py",
        "_internal/node.py",
        "_internal/wire/a/b.py",
        "_internal/wire/page.html",
    }
    moved = (tmp_path / "built" / "_internal" / "node.py").read_text()
    assert moved == "from evenkeel._internal.wire.a import b\n"
