"""What `make check` says about the structure: each violation, in a small tree that has it."""

from pathlib import Path

import pytest

from tools import structure


def tree(at: Path, **files: str) -> Path:
    for name, text in files.items():
        path = at.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        (path.parent / "__init__.py").touch()
    return at


def objections(at: Path) -> list[str]:
    return structure.objections(structure.modules_of(at), at)


def test_a_house_in_order(tmp_path: Path) -> None:
    tree(
        tmp_path,
        broker__intake="from paxos import replica\nimport broker.reads.tail\n",
        broker__reads__tail="import os\n",
        paxos__replica="from paxos.ids import Slot\n",
        paxos__ids="class Slot: ...\n",
    )
    assert objections(tmp_path) == []


@pytest.mark.parametrize(
    "back",
    [
        "from paxos.replica import Replica\n",
        "from paxos import replica\n",
        "import paxos.replica\n",
        "import typing\nif typing.TYPE_CHECKING:\n    from paxos.replica import Replica\n",
        "def late():\n    from paxos.replica import Replica\n",
    ],
)
def test_a_circle_of_files_however_it_is_imported(tmp_path: Path, back: str) -> None:
    tree(
        tmp_path,
        paxos__replica="from paxos.timers import due\nclass Replica: ...\n",
        paxos__timers="from paxos.lease import left\n",
        paxos__lease=back,
    )
    assert "a circle of 3 files: paxos.lease, paxos.replica, paxos.timers" in objections(tmp_path)


def test_a_circle_of_folders_without_a_circle_of_files(tmp_path: Path) -> None:
    tree(
        tmp_path,
        broker__reads__reader="import broker.delayed.fetches\n",
        broker__reads__tail="",
        broker__delayed__fetches="",
        broker__delayed__produces="import broker.reads.tail\n",
    )
    assert objections(tmp_path) == ["a circle of folders: broker.delayed, broker.reads"]


def test_an_import_from_a_lower_floor_and_from_a_neighbour(tmp_path: Path) -> None:
    tree(
        tmp_path,
        paxos__replica="import wire.records.batch\n",
        wire__records__batch="import broker.proposals.intake\n",
        broker__proposals__intake="",
    )
    assert objections(tmp_path) == [
        "paxos.replica imports wire.records.batch, which is not below it",
        "wire.records.batch imports broker.proposals.intake, which is not below it",
    ]


def test_a_folder_that_holds_too_much(tmp_path: Path) -> None:
    tree(tmp_path, **{f"storage__m{number}": "" for number in range(structure.MODULES_MAX)})
    assert objections(tmp_path) == []
    tree(tmp_path, storage__one_more="")
    assert objections(tmp_path) == ["storage has 21 modules: more than 20"]


def test_a_folder_of_tests_that_holds_too_much(tmp_path: Path) -> None:
    tree(tmp_path, **{f"tests__wire__m{number}": "" for number in range(structure.MODULES_MAX)})
    assert objections(tmp_path) == []
    tree(tmp_path, tests__wire__one_more="")
    assert objections(tmp_path) == ["tests/wire has 21 modules: more than 20"]


def test_every_room_is_on_a_floor() -> None:
    root = Path(__file__).parent.parent
    rooms = {path.parent.name for path in root.glob("*/__init__.py")} - {"tests", "tools"}
    assert rooms == {room for floor in structure.FLOORS for room in floor if (root / room).exists()}
