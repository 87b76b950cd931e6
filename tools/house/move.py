"""`python tools/house/move.py`: modules go to their folders, and get the names they have there.

No change of behaviour. `map.txt` says where each module goes, `names.txt` what gets another name
within one, `folders.txt` what each package says of itself, `phrases.txt` the rest. It may run on
any newer tree and twice: what is in its place stays there. Rewritten are imports, dotted names and
paths in strings, comments, documents, the Makefile and pyproject.toml. What it cannot decide is
printed.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

HERE: Final = Path(__file__).parent
TEXT: Final = {".py", ".md", ".toml", ".yaml", ".yml", ".txt", ".cpp", ".h", ".sh", ".js", ".html"}
TEXT_NAMES: Final = {"Makefile", "run"}
SCRIPT: Final = "move.py"
"""Not part of the house."""


class Edit(NamedTuple):
    start: int
    end: int
    text: str


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def dotted(path: str) -> str:
    name = path.removesuffix(".py").replace("/", ".")
    return name.removesuffix(".__init__")


def lines_of(name: str) -> list[str]:
    lines = (HERE / name).read_text().splitlines()
    return [line.rstrip() for line in lines if line.strip() and not line.startswith("#")]


def moves() -> dict[str, str]:
    """Old path -> new path, of everything that the map knows."""
    found: dict[str, str] = {}
    base = ""
    for line in lines_of("map.txt"):
        if line.startswith("@"):
            base = line[1:].strip()
            continue
        folder, _, names = line.partition(" : ")
        target = folder[1:] if folder.startswith("/") else str(PurePosixPath(base, folder))
        for name in names.split():
            alone = name.startswith("+")
            old, _, new = name.removeprefix("+").partition(">")
            new = new or (old if alone else old.rpartition("/")[2])
            ending = "" if alone else ".py"
            old = str(PurePosixPath(base, old)) + ending
            assert old not in found, f"{old} is in the map twice"
            found[old] = str(PurePosixPath(target, new)) + ending
    assert len(set(found.values())) == len(found), "two modules for one place"
    return found


class House:
    def __init__(self) -> None:
        self.paths = moves()
        self.tracked = {name for name in git("ls-files").split("\n") if name}
        self.here = {old for old in self.paths if old in self.tracked}
        self.modules = {
            dotted(old): dotted(new) for old, new in self.paths.items() if old.endswith(".py")
        }
        self.new_modules = set(self.modules.values())
        self.packages = {
            str(parent).replace("/", ".")
            for new in self.paths.values()
            for parent in PurePosixPath(new).parents
            if str(parent) != "."
        }
        self.done = {
            name
            for name, path in ((dotted(old), old) for old in self.paths)
            if path not in self.tracked
        }
        """Old names that no module has any more."""
        self.rooms = sorted({name.partition(".")[0] for name in self.modules} | {"cli"})
        self.names = renamed()
        self.undecided: list[str] = []
        rooms = "|".join(self.rooms)
        self.dotted = re.compile(rf"(?<![\w./-])(?:{rooms})(?:\.[A-Za-z_]\w*)+(?![\w(]|\.\w)")
        self.path = re.compile(rf"(?<![\w/.-])((?:\.\./)*)((?:{rooms})/[\w/.-]*\w)")
        self.bare, self.unclear = self._bare()
        self.phrases = phrases()

    def _bare(self) -> tuple[dict[str, str], set[str]]:
        """Base names that a module gave up, and of whom: `x.py` in a text without its folder."""
        owners: dict[str, list[str]] = defaultdict(list)
        for old, new in self.paths.items():
            if old.endswith(".py"):
                owners[PurePosixPath(old).name].append(PurePosixPath(new).name)
        one = {name: news[0] for name, news in owners.items() if len(news) == 1 and news[0] != name}
        many = {name for name, news in owners.items() if len(news) > 1 and set(news) != {name}}
        return one, many

    # -- names in texts

    def module(self, name: str) -> str | None:
        """As it is to be: `name` is a module's old name, or begins with one; None: as it is."""
        parts = name.split(".")
        for size in range(len(parts), 1, -1):
            prefix = ".".join(parts[:size])
            if prefix in self.new_modules and self.modules.get(prefix, prefix) == prefix:
                return None
            if prefix in self.modules:
                if size == len(parts) and prefix in self.done and prefix in self.packages:
                    return None  # the package of today, and not the module of yesterday
                inside = parts[size:]
                if inside:
                    inside[0] = self.names.get(prefix, {}).get(inside[0], inside[0])
                return ".".join([self.modules[prefix], *inside])
        return None

    def text(self, text: str, where: str) -> str:
        """Prose, or what stands in a string."""
        text = self.path.sub(lambda found: self._path(found, where), text)
        text = self.dotted.sub(lambda found: self.module(found.group()) or found.group(), text)
        for old, new in self.phrases:
            text = text.replace(old, new)
        return re.sub(
            r"(?<![\w/.*-])[a-z_0-9]+\.py\b",
            lambda found: self._base_name(found.group(), where),
            text,
        )

    def _path(self, found: "re.Match[str]", where: str) -> str:
        up, path = found.groups()
        if path in self.paths:
            return up + self.paths[path]
        if f"tests/{path}" in self.paths:
            return up + self.paths[f"tests/{path}"].removeprefix("tests/")
        if path.endswith(".py") and not {path, f"tests/{path}"} & {
            *self.paths.values(),
            *self.tracked,
        }:
            self.undecided.append(f"{where}: {path} is no file")
        return found.group()

    def _base_name(self, name: str, where: str) -> str:
        if name in self.bare:
            return self.bare[name]
        if name in self.unclear and not where.startswith("tests/"):
            self.undecided.append(f"{where}: which {name}?")
        return name


def phrases() -> list[tuple[str, str]]:
    """What is to be replaced as it stands: `old => new`, a line each."""
    pairs = (line.split(" => ") for line in lines_of("phrases.txt"))
    return [(old[1:-1], new[1:-1]) for old, new in pairs]


def renamed() -> dict[str, dict[str, str]]:
    """Old name of a module -> what gets another name in it."""
    found: dict[str, dict[str, str]] = {}
    for line in lines_of("names.txt"):
        if line.startswith("@"):
            continue
        module, *pairs = line.split()
        names = dict(pair.split(">") for pair in pairs)
        found.setdefault(module, {}).update(names)
    return found


def identifiers(path: str) -> dict[str, str]:
    """Variables, fields and parameters that get another name in this file."""
    found: dict[str, str] = {}
    for line in lines_of("names.txt"):
        where, _, pairs = line.partition(" : ")
        if line.startswith("@") and any(
            path == place or path.startswith(f"{place}/") for place in where[1:].split()
        ):
            found |= dict(pair.split(">") for pair in pairs.split())
    return found


def is_distinctive(name: str) -> bool:
    """No word of a sentence: `ReplicaDesk`, `encode_words`, not `Word`."""
    return "_" in name.strip("_") or len(re.findall("[A-Z]", name)) > 1


# -- Python ---------------------------------------------------------------------------------------


class Source:
    """One file of Python, and what is to be changed in it."""

    def __init__(self, house: House, path: str, text: str) -> None:
        self.house, self.path, self.source = house, path, text
        self.tree = ast.parse(text, path)
        self.starts = [0]
        for line in text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.edits: list[Edit] = []
        self.local: dict[str, str] = {}
        """Names of this file that get another one."""
        self.members: dict[str, dict[str, str]] = {}
        """Modules as they are called here, and names of theirs that get another one."""
        self.fields = identifiers(path)

    def at(self, row: int, column: int) -> int:
        return self.starts[row - 1] + column

    def offset(self, row: int, byte_column: int) -> int:
        line = self.source[self.starts[row - 1] : self.starts[row]]
        return self.starts[row - 1] + len(line.encode()[:byte_column].decode())

    def span(self, node: ast.stmt) -> tuple[int, int]:
        end_row, end_column = node.end_lineno, node.end_col_offset
        assert end_row is not None
        assert end_column is not None
        return self.offset(node.lineno, node.col_offset), self.offset(end_row, end_column)

    def rewritten(self) -> str:
        self._of_this_module()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                self._from(node)
            elif isinstance(node, ast.Import):
                self._import(node)
        self._tokens()
        text = self.source
        for edit in sorted(self.edits, reverse=True):
            text = text[: edit.start] + edit.text + text[edit.end :]
        return text

    def _names_of(self, module: str) -> dict[str, str]:
        """By its old name or by its new one."""
        for old, names in self.house.names.items():
            if module in (old, self.house.modules.get(old, old)):
                return names
        return {}

    def _of_this_module(self) -> None:
        names = self._names_of(dotted(self.path))
        text = {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)}
        text |= {
            n.name for n in ast.walk(self.tree) if isinstance(n, ast.ClassDef | ast.FunctionDef)
        }
        self.local |= {old: new for old, new in names.items() if old in text}

    def _from(self, node: ast.ImportFrom) -> None:
        assert node.module is not None
        names = self._names_of(node.module)
        targets: dict[str, list[str]] = defaultdict(list)
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            target, name = node.module, alias.name
            if whole in self.house.modules and node.module not in self.house.modules:
                if whole in self.house.done and whole in self.house.packages:
                    pass  # the package of today
                else:
                    target, _, name = self.house.modules[whole].rpartition(".")
                    self.members[alias.asname or alias.name] = self._names_of(whole)
            elif (moved := self.house.module(node.module)) is not None:
                target = moved
                name = names.get(alias.name, alias.name)
            elif alias.name in names:
                name = names[alias.name]
            if name != alias.name and alias.asname is None and alias.name in names:
                self.local[alias.name] = name
            called = alias.asname or (alias.name if alias.name not in names else name)
            plain = called == name and alias.asname is None
            targets[target].append(name if plain else f"{name} as {called}")
        start, end = self.span(node)
        before = self.source[start:end]
        same = [f"{a.name} as {a.asname}" if a.asname else a.name for a in node.names]
        if dict(targets) == {node.module: same}:
            return
        if "#" in before:
            self.house.undecided.append(
                f"{self.path}:{node.lineno}: a comment in an import is lost"
            )
        indent = " " * node.col_offset
        lines = [f"from {target} import {', '.join(names)}" for target, names in targets.items()]
        for at, line in enumerate(lines):
            if len(indent + line) > 100:
                names_of_it = line.partition(" import ")[2].split(", ")
                inner = "".join(f"{indent}    {name},\n" for name in names_of_it)
                lines[at] = f"{line.partition(' import ')[0]} import (\n{inner}{indent})"
        self.edits.append(Edit(start, end, f"\n{indent}".join(lines)))

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            if self.house.module(alias.name) is None:
                continue
            if alias.asname is None:
                self.house.undecided.append(f"{self.path}:{node.lineno}: import {alias.name}")
                continue
            start, end = self.span(node)
            text = self.source[start:end]
            self.edits.append(
                Edit(start, end, text.replace(alias.name, str(self.house.module(alias.name))))
            )

    def _tokens(self) -> None:
        taken = [(edit.start, edit.end) for edit in self.edits]
        before: list[str] = ["", ""]
        for token in tokenize.generate_tokens(io.StringIO(self.source).readline):
            start, end = self.at(*token.start), self.at(*token.end)
            if any(first <= start < last for first, last in taken):
                before = [before[1], token.string]
                continue
            new = token.string
            if token.type == tokenize.NAME:
                if before[1] == ".":
                    new = self.members.get(before[0], {}).get(token.string, token.string)
                else:
                    new = self.local.get(token.string, token.string)
                new = self.fields.get(new, new)
            elif token.type == tokenize.STRING:
                new = self._string(token.string)
            elif token.type == tokenize.COMMENT:
                new = self._prose(token.string)
            if new != token.string:
                self.edits.append(Edit(start, end, new))
            before = [before[1], token.string]

    def _string(self, text: str) -> str:
        prefix = re.match(r"[a-zA-Z]*", text)
        assert prefix is not None
        if "f" not in prefix.group().lower():
            return self._prose(text, code="\n" not in text)
        parts = re.split(r"(\{\{|\}\}|\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})", text)
        return "".join(
            part if at % 2 and part not in ("{{", "}}") else self._prose(part, code=True)
            for at, part in enumerate(parts)
        )

    def _prose(self, text: str, *, code: bool = False) -> str:
        text = self.house.text(text, self.path)
        for old, new in self.local.items():
            if is_distinctive(old):
                continue  # everywhere, see `everywhere`
            ends = r"(?=[.(\[`])" if not code else r"\b"
            text = re.sub(rf"(?<![\w.]){old}\b{ends}", new, text)
        if code:
            for old, new in self.fields.items():
                text = re.sub(rf"(?<=\.){old}\b", new, text)
        return text


# -- the whole tree -------------------------------------------------------------------------------


def everywhere(house: House) -> Callable[[str], str]:
    """Names that are no words of a sentence and that nothing else has."""
    counts = Counter(name for names in house.names.values() for name in names)
    names = {
        old: new
        for pairs in house.names.values()
        for old, new in pairs.items()
        if is_distinctive(old) and counts[old] == 1
    }
    if not names:
        return lambda text: text
    pattern = re.compile(rf"(?<![\w])(?:{'|'.join(sorted(names, key=len, reverse=True))})(?!\w)")
    return lambda text: pattern.sub(lambda found: names[found.group()], text)


def is_text(path: str) -> bool:
    here = PurePosixPath(path)
    if path.startswith(("tools/house/", "tests/fuzz/corpus/")) or "golden" in here.parts:
        return False
    return here.suffix in TEXT or here.name in TEXT_NAMES


def deeper(text: str, old: str, new: str, house: House) -> str:
    """`Path(__file__).parents[2]` in a file that has gone down by a folder."""
    by = new.count("/") - old.count("/")
    if not by:
        return text
    chain = re.compile(r"Path\(__file__\)(?:\.resolve\(\))?(\.parents\[(\d+)\]|(?:\.parent)+)")

    def moved(found: "re.Match[str]") -> str:
        steps = found.group(1)
        if found.group(2) is not None:
            return found.group().replace(steps, f".parents[{int(found.group(2)) + by}]")
        if steps == ".parent":
            house.undecided.append(f"{new}: {found.group()}: is what it names still there?")
            return found.group()
        return found.group() + ".parent" * by

    return chain.sub(moved, text)


def below_constants(text: str, house: House) -> str:
    """`f"{CLIENT}test_x.py"`, where `CLIENT` is a folder of tests."""
    for name, folder in re.findall(r'^(\w+): Final = "(tests/[\w/]*/)"$', text, re.MULTILINE):

        def moved(found: "re.Match[str]", folder: str = folder, name: str = name) -> str:
            new = house.paths.get(folder + found.group(1))
            if new is None or new == folder + found.group(1):
                return found.group()
            if new.startswith(folder):
                return f"{{{name}}}{new.removeprefix(folder)}"
            return new

        text = re.sub(rf"\{{{name}\}}([\w/]+\.py)", moved, text)
    return text


def rewrite(house: House, root: Path) -> dict[str, str]:
    """What files will contain, by their old paths; only those that change."""
    change = everywhere(house)
    result = {}
    for path in sorted(house.tracked):
        if not is_text(path):
            continue
        text = (root / path).read_text(encoding="utf-8")
        new = text
        if path.endswith(".py"):
            new = Source(house, path, text).rewritten() if text.strip() else text
            new = change(below_constants(new, house))
            if path in house.here:
                new = deeper(new, path, house.paths[path], house)
        else:
            text_now, title, earlier = text.partition(EARLIER)
            new = change(house.text(text_now, path)) + title + earlier
        if path == "pyproject.toml":
            new = project(new)
        if path == "docs/glossary.md" and EARLIER not in new:
            new += earlier_names(house)
        if new != text:
            result[path] = new
    return result


EARLIER: Final = "\n## Earlier names\n"


def earlier_names(house: House) -> str:
    """The table of the glossary: what was called otherwise before, and is now in another file."""
    rows = []
    for old, new in house.paths.items():
        if not old.endswith(".py") or old.startswith("tests/"):
            continue
        names = house.names.get(dotted(old), {})
        rows += [
            f"| `{a}` (`{old}`) | `{b}` (`{new}`) |" for a, b in names.items() if a[0].isupper()
        ]
        before, after = PurePosixPath(old).stem, PurePosixPath(new).stem
        if not names and after not in before and before not in after:
            rows.append(f"| `{old}` | `{new}` |")
    table = "\n".join(["| earlier | now |", "|---|---|", *rows])
    said = (
        "In older commits, issues and pages. Not listed is what only went to a folder, or whose prefix"
        " became one. Settings,\nmetrics, HTTP paths and bytes on disk and between nodes kept their"
        " names."
    )
    return f"{EARLIER}\n{said}\n\n{table}\n"


def project(text: str) -> str:
    """The room that is new: `cli/` beside `cluster/`, above it."""
    if '"cli"' in text:
        return text
    text = re.sub(r'"cluster",', '"cluster", "cli",', text)
    text = text.replace(
        '  "cluster | simulator | pipeline",', '  "cli",\n  "cluster | simulator | pipeline",'
    )
    return re.sub(
        r'^("cluster/\*\*" = .*)$',
        r'\1\n"cli/**" = ["T20", "S603", "S607", "S310"]',
        text,
        flags=re.MULTILINE,
    )


def carry_out(house: House, root: Path, changed: Mapping[str, str]) -> None:
    for path, text in changed.items():
        (root / path).write_text(text, encoding="utf-8")
    for old in sorted(house.here):
        new = house.paths[old]
        if new != old:
            (root / new).parent.mkdir(parents=True, exist_ok=True)
            git("mv", old, new)
    packages(house, root)


def packages(house: House, root: Path) -> None:
    """An `__init__.py` in each folder of modules, which says what lives there; none in `tests/`."""
    says = folders()
    wanted = {
        str(parent)
        for new in house.paths.values()
        if new.endswith(".py") and not new.startswith("tests/")
        for parent in PurePosixPath(new).parents
        if str(parent) != "."
    } | set(says)
    for folder in sorted(wanted):
        init = root / folder / "__init__.py"
        if not init.parent.is_dir():
            continue
        text = init.read_text() if init.exists() else ""
        if not text.strip():
            init.write_text(f'"""{says[folder]}"""\n' if folder in says else "")
            if folder not in says:
                house.undecided.append(f"folders.txt says nothing of {folder}")
    for path in git("ls-files", "*/__init__.py").split():
        if not [one for one in (root / path).parent.glob("**/*.py") if one != root / path]:
            git("rm", "-qf", path)
    git("add", "--all", ".")


def folders() -> dict[str, str]:
    """Blocks of a path and what is said of it, as `# path` and the lines below it."""
    text = (HERE / "folders.txt").read_text()
    found = re.findall(r"^# (\S+)\n(.*?)(?=^# \S+$|\Z)", text, re.MULTILINE | re.DOTALL)
    return {folder: said.strip() + ("\n" if "\n" in said.strip() else "") for folder, said in found}


def unknown(house: House) -> Iterator[str]:
    """Modules in a room of the map that it has not heard of."""
    bases = [line[1:].strip() + "/" for line in lines_of("map.txt") if line.startswith("@")]
    known = set(house.paths) | set(house.paths.values())
    for path in sorted(house.tracked):
        strange = path.endswith(".py") and not path.endswith("/__init__.py") and path not in known
        if strange and any(path.startswith(base) for base in bases):
            yield f"the map has not heard of {path}"


def tidy(root: Path) -> Iterator[str]:
    ruff = root / ".venv" / "bin" / "ruff"

    def run(*arguments: str) -> str:
        command = [str(ruff), *arguments]
        return subprocess.run(command, cwd=root, check=False, capture_output=True, text=True).stdout

    run("check", "--select", "I", "--fix", "-q", ".")
    run("format", "-q", ".")
    for _ in range(3):
        long = run("check", "--select", "E501", "--output-format", "concise", ".")
        rows: dict[str, list[int]] = defaultdict(list)
        for path, row in re.findall(r"^(\S+?):(\d+):\d+: E501", long, re.MULTILINE):
            rows[path].append(int(row))
        for path, found in rows.items():
            wrap(root / path, found)
    run("format", "-q", ".")
    yield from run("check", "--output-format", "concise", ".").splitlines()


WORD: Final = re.compile(r"(?:[^\s`]*`[^`]*`[^\s`]*|\S)+")
"""Of a sentence; what is between backticks is not torn."""
MARK: Final = re.compile(r"\s*(?:- |\* |\d+\. |\| )")


def wrap(path: Path, rows: list[int]) -> None:
    """Lines of prose that have become too long: their last words go to the next one."""
    lines = path.read_text().splitlines()
    prose = rows_of_prose(path.read_text())
    for row in sorted(rows, reverse=True):
        at = row - 1
        while at in prose and len(lines[at]) > 100:
            at = push_down(lines, at, prose)
    path.write_text("\n".join(lines) + "\n")


def rows_of_prose(text: str) -> set[int]:
    """Rows (from 0) that are comments, or in a string that stands alone."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found |= set(range(node.lineno - 1, node.end_lineno or 0))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
            found.add(token.start[0] - 1)
    return found


def push_down(lines: list[str], at: int, prose: set[int]) -> int:
    """What does not fit into this line goes to the next one; that one."""
    line = lines[at]
    indent = re.match(r"\s*(?:# )?", line)
    assert indent is not None
    words = WORD.findall(line[indent.end() :])
    kept = [words.pop(0)]
    while words and len(indent.group() + " ".join([*kept, words[0]])) <= 100:
        kept.append(words.pop(0))
    if not words:
        return len(lines)  # one long word
    lines[at] = indent.group() + " ".join(kept)
    more = indent.group() + ("  " if MARK.match(line) else "")
    after = lines[at + 1] if at + 1 < len(lines) else ""
    goes_on = (
        at + 1 in prose
        and after.strip(" #")
        and not line.rstrip().endswith('"""')
        and after.startswith(more)
        and not after[len(more) :].startswith((" ", '"""', "|"))
        and not MARK.match(after[len(more) - 1 :])
    )
    if goes_on:
        lines[at + 1] = more + " ".join([*words, after[len(more) :]])
    else:
        lines.insert(at + 1, more + " ".join(words))
        later = {row + 1 if row > at else row for row in prose} | {at + 1}
        prose.clear()
        prose.update(later)
    return at + 1


def main(arguments: Iterable[str]) -> int:
    parser = argparse.ArgumentParser(prog=SCRIPT, description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    options = parser.parse_args(list(arguments))
    root = Path(git("rev-parse", "--show-toplevel").strip())
    house = House()
    changed = rewrite(house, root)
    going = [old for old in house.here if house.paths[old] != old]
    if not options.dry_run:
        carry_out(house, root, changed)
        house.undecided += tidy(root)
        git("add", "--all", ".")
    house.undecided += unknown(house)
    house.undecided += [
        f"the map has {old}, which is nowhere"
        for old, new in house.paths.items()
        if old not in house.tracked and new not in house.tracked
    ]
    for line, times in Counter(house.undecided).items():
        print(line if times == 1 else f"{line} ({times} times)")
    print(f"{len(going)} files moved, {len(changed)} rewritten")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
