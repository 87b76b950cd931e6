"""Scenario 14: both sides propose a forwarded request: one execution, one answer (R16)."""

from paxos.messages import Accepted
from simulator.script import Script


def test_proposed_by_both_sides() -> None:
    script = Script()
    script.elect(0)
    script.write_all(0, 1)
    held = script.hold(Accepted, target=0)
    first = script.write(0, 2)  # proposed by M, not yet chosen
    script.wait(5)
    script.steal(1)
    script.until(lambda: script.replica(0).handing_to == 1)
    script.write(0, 2)  # the client's retry goes to N
    script.until(lambda: len(script.held(1).intake.adopted) == 1)
    script.release(held)
    script.until(lambda: len(first.answers) == 2)
    assert {answer.slot for answer in first.answers} == {first.slot}
    copies = [entry for entry in script.held(1).log if first.slot and _holds(entry.chunks, 2)]
    assert len(copies) == 2, "both did propose it"
    assert script.agreement.models[script.replica(0).group].where[100] == [2, first.slot]


def _holds(chunks: tuple[object, ...], seq: int) -> bool:
    data = b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[arg-type] # buffers
    return data[0] == 1 and data[-8:] == seq.to_bytes(8, "big")
