"""One target under atheris (libFuzzer): mutation guided by the branches of our code.

Started by `python -m tests.fuzz --guided`, one process per target, because libFuzzer ends its
process when it is done. Everything below the targets is instrumented, also the generated Kafka
codecs. Half of the mutations are ours (they know the structure), half are libFuzzer's (they know
the branches).
"""

import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Final

import atheris

PACKAGES: Final = ["wire", "paxos", "broker", "coordinator", "balancer", "storage", "runtime"]
SLOWER: Final = 8
"""Instrumentation takes time: the limit on CPU time is larger by this factor."""

with atheris.instrument_imports(include=PACKAGES):
    from tests.fuzz import corpus
    from tests.fuzz.engine import execute
    from tests.fuzz.mutate import INPUT_BYTES_MAX
    from tests.fuzz.targets import target_named
    from wire.codec import compiler


def instrument_codecs() -> None:
    """Decoders are made at their first use: from now on they are instrumented when they are
    made."""
    plain = compiler.make_decoder

    def make(cls: type[object], version: int, *, flexible: bool) -> object:
        return atheris.instrument_func(plain(cls, version, flexible=flexible))

    compiler.make_decoder = make


def main() -> None:
    name, seed, seconds, folder = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4]
    instrument_codecs()
    target = target_named(name)
    type(target).cpu_ms_max *= SLOWER
    samples = list(target.samples(Random(f"{seed} {name}")))

    def one_input(data: bytes) -> None:
        execute(target, data)

    def mutate(data: bytes, max_size: int, number: int) -> bytes:
        dice = Random(number)
        if dice.random() < 0.5:
            return bytes(atheris.Mutate(data, max_size))
        return target.mutate(target.marked(data), dice, samples)[:max_size]

    with tempfile.TemporaryDirectory() as seeds:
        for number, data in enumerate([*(one.data for one in samples), *corpus.kept(name)]):
            (Path(seeds) / f"{number:05d}").write_bytes(data)
        arguments = [
            sys.argv[0], f"-seed={seed}", f"-max_total_time={seconds}", "-print_final_stats=1",
            f"-max_len={INPUT_BYTES_MAX}", f"-artifact_prefix={folder}/finding-", "-verbosity=1",
            folder, seeds,
        ]  # fmt: skip
        atheris.Setup(arguments, one_input, custom_mutator=mutate)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
