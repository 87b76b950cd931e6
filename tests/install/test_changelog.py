"""CHANGELOG.md is made from changelog.d, and can be added to until a version is released."""

from pathlib import Path

import pytest

from tools.changelog import ChangelogError, entries, main, merged


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        folder.joinpath(name.replace("__", ".") + ".md").write_text(text)
    return folder


def test_each_file_is_an_entry_below_its_kind(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", b__fixed="Two\nlines.\n", a__fixed="One.\n", c__added="New.")
    assert entries(folder) == {"Fixed": ["- One.", "- Two lines."], "Added": ["- New."]}


def test_an_entry_is_wrapped_and_its_links_lead_from_the_page(tmp_path: Path) -> None:
    text = f"{'word ' * 30}([page](../docs/spark.md)).\n\nMore."
    ((found,),) = entries(write(tmp_path / "d", a__fixed=text)).values()
    lines = found.splitlines()
    assert max(map(len, lines)) <= 120
    assert lines[1].endswith("([page](docs/spark.md)).")
    assert lines[2:] == ["", "  More."]


def test_a_list_in_an_entry_stays_one(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", a__fixed="Fixed:\n- one\n- two")
    assert entries(folder) == {"Fixed": ["- Fixed:\n  - one\n  - two"]}


@pytest.mark.parametrize("name", ["topic", "topic__mended", "topic__fixed__old"])
def test_a_file_without_a_kind_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ChangelogError, match="topic"):
        entries(write(tmp_path / "d", **{name: "Text."}))


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ChangelogError, match=r"empty\.fixed\.md"):
        entries(write(tmp_path / "d", empty__fixed=" \n"))


def test_entries_of_one_version_come_together() -> None:
    first = merged("", "0.2.0", {"Fixed": ["- One."], "Added": ["- New."]})
    assert first.endswith("## 0.2.0\n\n### Added\n\n- New.\n\n### Fixed\n\n- One.\n")
    both = merged(first, "0.2.0", {"Fixed": ["- Two."], "Changed": ["- Other."]})
    assert both.endswith(
        "### Added\n\n- New.\n\n### Changed\n\n- Other.\n\n### Fixed\n\n- One.\n- Two.\n"
    )
    assert merged(both, "0.2.0", {}) == both


def test_a_new_version_is_above_the_old_one_which_stays() -> None:
    old = merged("", "0.2.0", {"Fixed": ["- One."]})
    page = merged(old, "0.3.0", {"Added": ["- New."]})
    assert page.index("## 0.3.0") < page.index("## 0.2.0")
    assert page.endswith(old[old.index("## 0.2.0") :])
    with pytest.raises(ChangelogError, match=r"0\.2\.0 is released"):
        merged(page, "0.2.0", {"Fixed": ["- Late."]})


def test_files_are_removed_once_they_are_on_the_page(tmp_path: Path) -> None:
    folder = write(tmp_path / "changelog.d", a__fixed="One.")
    (tmp_path / "wire").mkdir()
    (tmp_path / "wire" / "software.py").write_text('VERSION: Final = "1.0.0"\n')
    assert main(["--tree", str(tmp_path)]) == 0
    assert not list(folder.iterdir())
    assert "## 1.0.0\n\n### Fixed\n\n- One.\n" in (tmp_path / "CHANGELOG.md").read_text()


def test_nothing_is_lost_by_a_wrong_file(tmp_path: Path) -> None:
    folder = write(tmp_path / "changelog.d", a__fixed="One.", b__wrong="Two.")
    (tmp_path / "wire").mkdir()
    (tmp_path / "wire" / "software.py").write_text('VERSION: Final = "1.0.0"\n')
    assert main(["--tree", str(tmp_path)]) == 1
    assert len(list(folder.iterdir())) == 2
    assert not (tmp_path / "CHANGELOG.md").exists()
