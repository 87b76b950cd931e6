"""Frameworks on top of the clients: each in a virtual environment of its own, with pinned versions.

`requirements/NAME.txt` is what `pip freeze` said of it. It is installed in `build/compat/NAME` of
the repository, and in no folder of tests: tools look through those.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.compat.frameworks import rows, syslog
from tests.compat.frameworks.registry import serving
from tests.compat.languages import Missing, Program, Row

HERE: Final = Path(__file__).parent
INSTALLED: Final = HERE.parents[2] / "build" / "compat"
TOLD: Final = HERE / "apps" / "told.py"
"""Imported by every application, which sees no other module of this repository."""
LANGUAGE: Final = "Frameworks"
INSTALL_S_MAX: Final = 540.0


def environment(name: str) -> Path:
    """The Python of the environment, which is made if its requirements have changed.

    Raises:
        Missing: if a package could not be had.
    """
    place, wanted = INSTALLED / name, HERE / "requirements" / f"{name}.txt"
    stamp = place / "installed.txt"
    if not stamp.exists() or stamp.read_text() != wanted.read_text():
        shutil.rmtree(place, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(place))
        _run(str(place / "bin" / "python"), "-m", "pip", "install", "-q", "-r", str(wanted))
        shutil.copy(wanted, stamp)
    return place / "bin" / "python"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S_MAX)
    if done.returncode != 0:
        raise Missing(f"{' '.join(command[1:4])} failed: {done.stderr[-600:]}")


def version(name: str, package: str) -> str:
    text = (HERE / "requirements" / f"{name}.txt").read_text()
    found = re.search(rf"^{re.escape(package)}==(\S+)$", text, re.MULTILINE)
    assert found, f"{name}.txt does not pin {package}"
    return found[1]


def _framework(name: str, package: str, app: str, own: Mapping[str, Row], as_: str = "") -> Program:
    return Program(
        LANGUAGE,
        f"{as_ or package} {version(name, package)}",
        (str(environment(name)), str(TOLD.parent / app)),
        own=own,
        environment={**os.environ, "PYTHONPATH": str(TOLD.parent)},
    )


def _registry() -> Program:
    serving.installed()
    apicurio = f"Apicurio Registry {serving.version()}, confluent-kafka"
    return _framework("schemaregistry", "confluent-kafka", "avro_app.py", serving.ROWS, apicurio)


MADE: Final[Mapping[str, Callable[[], Program]]] = {
    "quixstreams": lambda: _framework("quixstreams", "quixstreams", "quix.py", rows.QUIX),
    "Faust": lambda: _framework("faust", "faust-streaming", "faust_app.py", rows.FAUST),
    "FastStream": lambda: _framework("faststream", "faststream", "fast_stream.py", rows.FASTSTREAM),
    "Celery": lambda: _framework("celery", "celery", "celery_app.py", rows.TASKS),
    "taskiq": lambda: _framework("taskiq", "taskiq-aio-kafka", "taskiq_app.py", rows.TASKS),
    "schema registry": _registry,
    "rsyslog": syslog.program,
}


def programs(scratch: Path) -> list[Program]:
    made = []
    for name, make in MADE.items():
        try:
            made.append(make())
        except Missing as missing:
            print(f"{name}: skipped, {missing}")
    return made
