"""Tidy: rules for the source and the documents themselves (docs/architecture.md, "Habits").

No rule here has a switch. Exceptions are listed by name, with a reason, in this file.
"""

import argparse
import ast
import gc
import itertools
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import attrs
import pytest

from cli import main as cli
from runtime.config import config
from runtime.config.fields import doc_of, show
from runtime.config.listeners import ListenerSettings
from runtime.metrics import collector as metrics

ROOT: Final = Path(__file__).parent.parent
FUNCTION_LINES_MAX: Final = 70
MODULE_LINES_MAX: Final = 600
FILES_MIN: Final = 150
"""With fewer files than this we would be looking in the wrong place."""

LONG_MODULES: Final[dict[str, str]] = {}
"""Tables that may be longer than MODULE_LINES_MAX: path -> reason."""
LONG_FUNCTIONS: Final[dict[str, str]] = {}
"""path:name -> reason."""
READ_BY_PROPERTY: Final = {"listen.advertised_kafka": "told_to_clients"}
"""Settings that others read through a property of their section."""
USERS_PACKAGES: Final = ("evenkeel", "pyspark_evenkeel")
"""Packages people import by name, whose __init__ may re-export."""

METRIC: Final = re.compile(r"\bevenkeel_[a-z0-9_]+")
DOCUMENT: Final = re.compile(r"\bdocs/[\w./-]+\.(?:md|svg)\b")
TEST: Final = re.compile(r"\bdef (test_\w+)\(")
NAMED_TEST: Final = re.compile(r"\btest_\w+")
LINK: Final = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)|(?:src|srcset)=\"([^\"]+)\"")
CODE_BLOCK: Final = re.compile(r"^ *```(?:sh|bash|console)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
INLINE_CODE: Final = re.compile(r"`([^`\n]+)`")


# -- which files there are ------------------------------------------------------------------------


@cache
def tracked() -> tuple[str, ...]:
    """Every file that is in git or would be after `git add`; without git, all files."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    answer = subprocess.run(listing, cwd=ROOT, capture_output=True, check=False, text=True)
    names = set(answer.stdout.split("\0")) if answer.returncode == 0 else set(untracked())
    return tuple(sorted(name for name in names if name and (ROOT / name).is_file()))


def untracked() -> Iterator[str]:
    """The files of an unpacked archive outside of hidden folders and caches."""
    for folder, folders, files in os.walk(ROOT):
        here = Path(folder).relative_to(ROOT)
        folders[:] = [name for name in folders if name == ".ci" or name[0] not in "._"]
        yield from ((here / name).as_posix() for name in files)


def python_files() -> list[str]:
    return [name for name in tracked() if name.endswith(".py")]


@cache
def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def tree_of(name: str) -> ast.Module:
    gc.disable()  # else it goes through all trees again and again
    try:
        return ast.parse(text_of(name), name)
    finally:
        gc.enable()


def documents() -> list[str]:
    return [name for name in tracked() if name.endswith(".md")]


def test_we_look_at_the_whole_repository() -> None:
    assert len(python_files()) >= FILES_MIN
    assert {"README.md", "Makefile", "node.py", "paxos/replica.py"} <= set(tracked())


# -- size and shape -------------------------------------------------------------------------------


def test_modules_fit_their_limit() -> None:
    """A module that does not fit is two modules."""
    lengths = {name: text_of(name).count("\n") for name in python_files()}
    long = {name: lines for name, lines in lengths.items() if lines > MODULE_LINES_MAX}
    assert long.keys() == LONG_MODULES.keys(), long


def test_functions_fit_on_a_page() -> None:
    """The parent decides, the leaves compute: no function needs more than a page."""
    long = {
        f"{name}:{node.name}"
        for name in python_files()
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES_MAX
    }
    assert long == LONG_FUNCTIONS.keys()


def test_nothing_is_left_for_later() -> None:
    """Open work is in the README's table or an issue, not in a comment."""
    later = re.compile(r"\b(?:FIX" + r"ME|TO" + r"DO|X" + r"XX|HA" + r"CK)\b")
    assert not [name for name in tracked() if is_text(name) and later.search(text_of(name))]


def test_packages_import_nothing() -> None:
    """A package says what it contains; every name is imported from where it is defined."""
    full = [
        name
        for name in python_files()
        if name.endswith("__init__.py")
        and [one for one in tree_of(name).body if not is_text_alone(one)]
        and not name.startswith(USERS_PACKAGES)
    ]
    assert not full


def is_text_alone(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def test_modules_say_what_they_are() -> None:
    """A module opens with its theory of operation."""
    silent = [
        name
        for name in python_files()
        if text_of(name).strip() and ast.get_docstring(tree_of(name)) is None
    ]
    assert not silent


# -- no file without a reference ------------------------------------------------------------------


def imported_by(name: str) -> Iterator[str]:
    """Dotted names that a file imports; `from a import b` may mean the module a.b."""
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert not node.level, f"{name}: imports are absolute"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def run_by_name() -> set[str]:
    """Modules that are started: `-m MODULE` in a target or a command line, console scripts, and
    files and jobs that Python code names in a string (a helper process)."""
    named = set(re.findall(r"-m ([a-z_.]+)", text_of("Makefile") + text_of(".ci/run")))
    named |= set(re.findall(r'^\w+ = "([a-z_.]+):\w+"$', text_of("pyproject.toml"), re.MULTILINE))
    for name in python_files():
        strings = [n.value for n in ast.walk(tree_of(name)) if isinstance(n, ast.Constant)]
        words = [value for value in strings if isinstance(value, str)]
        named |= {after for word, after in itertools.pairwise(words) if word == "-m"}
        named |= {word for word in words if re.fullmatch(r"[a-z_]+\.py", word)}
        named |= {word for word in words if re.fullmatch(r"pipeline(\.[a-z_]+)+", word)}  # jobs
    return named


def test_every_file_is_referred_to() -> None:
    """A file nobody imports, runs or tests is dead."""
    imported: set[object] = set()
    for name in python_files():
        for dotted in imported_by(name):
            imported |= {dotted, (Path(name).parent, dotted)}  # beside a program that a path starts
    run = run_by_name()
    orphans = []
    for name in python_files():
        path = Path(name)
        dotted = name.removesuffix(".py").replace("/", ".")
        if path.name == "__init__.py" or path.name.startswith(("test_", "conftest")):
            continue
        if path.name == "__main__.py":
            dotted = dotted.removesuffix(".__main__")
        if not {dotted, path.name} & run and not {dotted, (path.parent, path.stem)} & imported:
            orphans.append(name)
    assert not orphans


def test_targets_run_what_exists() -> None:
    """`make sim` must not end in "No module named"."""
    modules = set(re.findall(r"\$\(RUN\) -m ([a-z_.]+)", text_of("Makefile"))) - {"pytest"}
    assert modules
    missing = []
    for module in modules:
        path = module.replace(".", "/")
        if not {f"{path}.py", f"{path}/__main__.py"} & set(tracked()):
            missing.append(module)
    assert not missing


# -- documents ------------------------------------------------------------------------------------


def commands_in(document: str) -> list[list[str]]:
    """Command lines in fenced shell blocks and in `code`, up to a comment or a redirection."""
    text = text_of(document)
    blocks = [block.replace("\\\n", " ") for block in CODE_BLOCK.findall(text)]
    lines = [line for block in blocks for line in block.splitlines()]
    lines += INLINE_CODE.findall(CODE_BLOCK.sub("", text))
    found = []
    for line in lines:
        plain = line.strip().removeprefix("$ ").removeprefix(".venv/bin/")
        if plain.startswith(("make ", "evenkeel ")):
            words = shlex.split(plain, comments=True)
            found.append(list(itertools.takewhile(lambda word: word not in {">", "|"}, words)))
    return found


def test_make_targets_in_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    named = {words[1] for name in documents() for words in commands_in(name) if words[0] == "make"}
    assert named >= {"setup", "demo", "test", "check"}
    assert named <= targets


def test_evenkeel_commands_in_documents_parse(capsys: pytest.CaptureFixture[str]) -> None:
    """The program understands every command that a reader may copy."""
    commands = {
        tuple(words[1:]): name
        for name in documents()
        for words in commands_in(name)
        if words[0] == "evenkeel"
    }
    assert commands
    parser = cli._parser()
    assert isinstance(parser, argparse.ArgumentParser)
    for words, name in commands.items():
        plain = ["1" if word == "N" else word.strip("[]") for word in words]
        try:
            parser.parse_args(plain)
        except SystemExit as refusal:
            if refusal.code:
                pytest.fail(f"{name}: evenkeel {' '.join(words)}: {capsys.readouterr().err}")


def test_links_in_documents_lead_somewhere() -> None:
    broken = []
    for name in documents():
        for found in LINK.findall(text_of(name)):
            target = found[0] or found[1]
            if "://" not in target and not (ROOT / name).parent.joinpath(target).exists():
                broken.append(f"{name}: {target}")
    assert not broken


def test_documents_named_in_the_code_exist() -> None:
    """A docstring must not send the reader to a page that does not exist."""
    missing = {
        f"{name}: {document}"
        for name in [*python_files(), *documents()]
        for document in DOCUMENT.findall(text_of(name))
        if document not in tracked()
    }
    assert not missing


def test_tests_named_in_documents_exist() -> None:
    """docs/seeds.md promises a test for each mechanism: a renamed one would show nothing."""
    names = {Path(name).stem for name in python_files()}
    for name in python_files():
        names |= set(TEST.findall(text_of(name))) if name.startswith("tests/") else set()
    missing = {
        f"{document}: {word}"
        for document in documents()
        for word in NAMED_TEST.findall(text_of(document))
        if word not in names
        if not (word.endswith("_") and any(known.startswith(word) for known in names))
    }
    assert not missing


def defined_in(name: str) -> set[str]:
    """Functions and classes of a module; methods and fields as Class.name."""
    names = set()
    for node in tree_of(name).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{one.name}"
                for one in node.body
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return names


def test_functions_named_beside_their_file_exist() -> None:
    """As in: `paxos/acceptor.py` `Acceptor.on_accept`."""
    pointer = re.compile(r"`(\w[\w/]*/\w+\.py)`((?:,? `[A-Z]\w+(?:\.\w+)?`)+| `[a-z_]+`)")
    found = [
        (document, file, name)
        for document in documents()
        if not document.startswith(("docs/adr/", "docs/mutants.md"))
        for file, names in pointer.findall(text_of(document))
        for name in re.findall(r"`([^`]+)`", names)
    ]
    assert len(found) > 15
    gone = [one for one in found if one[1] not in tracked() or one[2] not in defined_in(one[1])]
    assert not gone


def exported_metrics() -> set[str]:
    """Names in the collectors, as in the source (counters get _total on the way)."""
    names = {f"evenkeel_{name}" for name in metrics.BROKER_COUNTERS}
    sources = [
        name for name in tracked() if re.fullmatch(r"runtime/(metrics/\w+|\w*metrics)\.py", name)
    ]
    for node in (node for name in sources for node in ast.walk(tree_of(name))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            names |= {word for word in METRIC.findall(node.value) if not word.endswith("_")}
    return names


def test_every_metric_is_documented() -> None:
    """And every documented one is exported."""
    rows = re.findall(r"^\| `(evenkeel_[a-z0-9_]+)", text_of("docs/reference.md"), re.MULTILINE)
    documented = {name.removesuffix("_total") for name in rows}
    assert documented == exported_metrics()


def configuration_rows() -> list[str]:
    """The table of docs/reference.md, from the fields themselves."""
    rows = []
    for section, section_class in {**config.SECTIONS, "listeners": ListenerSettings}.items():
        for field in attrs.fields(section_class):
            default = "required" if field.default is attrs.NOTHING else show(field.default)
            rows.append(f"| `{section}.{field.name}` | `{default}` | {doc_of(field)} |")
    return rows


def test_the_configuration_table_is_that_of_the_code() -> None:
    """Printed by `python tests/test_source.py`."""
    rows = re.findall(r"^\| `[a-z_]+\.[a-z_]+` \|.*$", text_of("docs/reference.md"), re.MULTILINE)
    assert rows == configuration_rows()


def test_every_setting_is_read() -> None:
    """A setting that nothing reads has no effect."""
    product = [name for name in python_files() if not name.startswith("tests/")]
    code = "\n".join(text_of(name) for name in product if name != "runtime/config/sections.py")
    unread = []
    for section, section_class in config.SECTIONS.items():
        for field in attrs.fields(section_class):
            read_as = READ_BY_PROPERTY.get(f"{section}.{field.name}", field.name)
            if not re.search(rf"\.{read_as}\b", code):
                unread.append(f"{section}.{field.name}")
    assert not unread


# -- nothing about the author's machine -----------------------------------------------------------


def is_text(name: str) -> bool:
    return Path(name).suffix not in {".png", ".ico", ".woff2", ".xz"}


def private_strings() -> list[str]:
    """This checkout's path, this user's home, this machine's package index."""
    strings = [str(ROOT) + "/", str(Path.home()) + "/"]
    for key, value in os.environ.items():
        if key.startswith("PIP_") and "/" in value:
            strings += value.split()
    return [string for string in strings if len(string) > 3]


def test_no_path_of_this_machine_and_no_registry() -> None:
    """The repository must not reveal where it was written or where its packages came from."""
    patterns = [re.escape(string) for string in private_strings()]
    patterns += [
        "/ho" + r"me/\w+/",
        "/wo" + r"rk/\w+",
        "--(?:extra-)?index-" + "url",
        "/sim" + "ple/",
    ]
    forbidden = re.compile("|".join(patterns))
    found = [
        f"{name}: {match.group()}"
        for name in tracked()
        if is_text(name) and (match := forbidden.search(text_of(name)))
    ]
    assert not found


if __name__ == "__main__":
    print("\n".join(configuration_rows()))  # noqa: T201 (for docs/reference.md)
