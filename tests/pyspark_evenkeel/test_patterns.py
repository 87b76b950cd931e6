"""An accepted pattern means the same in Java, where Spark's own source compiles it."""

import re
import shutil
import subprocess
import warnings
from pathlib import Path
from random import Random

import pytest

from pyspark_evenkeel.patterns import read as parsed

TOPICS = ("a", "b", "ab", "aab", "abc", "A", "aB", "a-b", "a.b", "a_b", "k", "K", "s", "0", "10")
TOPICS += ("orders", "orders-1", "orders.eu", "Orders", "x&y", "a|b", "z9", "-", "_", ".", "aaaa")
READ_ALIKE = (
    "orders|payments",
    "orders.*",
    r"orders\.[a-z]+",
    r"(?:a|b)+c?",
    r"(a)(b)?\2",
    "[^a-c]+",
    "[a-c-]+",
    "[-a]+",
    r"[\w.]+",
    r"\w+?-\d++",
    "(?i)orders.*",
    "a{1,3}b{0}",
    "(?!orders)[a-z]+",
    "(?>a*)b",
    r"^a$",
    r"\Aa\Z",
    r"a\b.b",
    "[&a]+",
    "",
)
READ_OTHERWISE = (
    "[a-z&&[^b]]+",
    "[a-z&&b]",
    "[a[bc]]+",
    "[]a]+",
    "[^]a]+",
    "[a--b]",
    "[a||b]",
    r"\Qa.b\E",
    r"\p{Lower}+",
    r"[\p{L}]+",
    r"\h",
    r"\v",
    r"\R",
    r"\z",
    r"\G",
    r"a\0",
    r"\07",
    r"(a)\10",
    r"\x61",
    r"\N{DIGIT ONE}",
    r"\u0061",
    "(?P<name>a)",
    "(?<name>a)",
    "(?P=name)",
    "(?x)a b",
    "(?m)a",
    "(?a)a",
    "(?U)a",
    "a(?i)b",
    "(?i:a)",
    "(?#note)a",
    "(a)?(?(1)b|c)",
    "a{,2}",
    "a{",
    "a{x}",
    "(?i)\u212a",
    "[\u017f]",
    "a**",
    "(a",
    "a)",
    "*",
)
ALPHABET = (
    *r"aabbcKs019.-_&|^$()[]{}?*+,\ ",
    *("[a-c]", "[^b", "&&", r"\d", r"\w", r"\b", r"\Q", r"\E", r"\p{L}", "(?:", "(?i)", "(?!"),
    *("(?=", "(?<", "(?P<n>", "{1,2}", "{,2}", r"\1", r"\0", r"\-", "a-", "--", "||"),
)
JAVA = """
import java.nio.file.*; import java.util.*; import java.util.regex.*;
public class Matches {
    public static void main(String[] args) throws Exception {
        List<String> topics = Files.readAllLines(Path.of(args[0]));
        StringBuilder told = new StringBuilder();
        for (String pattern : Files.readAllLines(Path.of(args[1]))) {
            try {
                Pattern one = Pattern.compile(pattern);
                for (String topic : topics) told.append(one.matcher(topic).matches() ? '1' : '0');
            } catch (PatternSyntaxException error) { told.append("refused"); }
            told.append('\\n');
        }
        System.out.print(told);
    }
}
"""


@pytest.mark.parametrize("text", READ_ALIKE)
def test_what_both_read_alike_is_taken(text: str) -> None:
    assert parsed(text).pattern == text


@pytest.mark.parametrize("text", READ_OTHERWISE)
def test_what_java_reads_otherwise_or_not_at_all_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed(text)


def drawn(count: int) -> list[str]:
    """Patterns of all kinds that we accept, and that match some text."""
    chance = Random(17)
    found: dict[str, None] = {}
    while len(found) < count:
        text = "".join(chance.choice(ALPHABET) for _ in range(chance.randint(1, 9)))
        try:
            expression = parsed(text)
        except ValueError:
            continue
        if any(map(expression.fullmatch, TOPICS)):
            found[text] = None
    return list(found)


@pytest.mark.skipif(
    shutil.which("java") is None or shutil.which("javac") is None,
    reason="there is no Java with a compiler to compare with",
)
def test_java_agrees(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Python warns of what it will read differently one day
        patterns = [*(one for one in READ_ALIKE if one), *drawn(1_000)]
    for name, text in (("Matches.java", JAVA), ("topics", "\n".join(TOPICS))):
        (tmp_path / name).write_text(text)
    (tmp_path / "patterns").write_text("\n".join(patterns))
    command = ["java", "Matches.java", "topics", "patterns"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    told = run.stdout.split("\n")[:-1]
    ours = [
        "".join("01"[re.fullmatch(one, topic) is not None] for topic in TOPICS) for one in patterns
    ]
    differing = [one for one in zip(patterns, ours, told, strict=True) if one[1] != one[2]]
    assert differing == []
