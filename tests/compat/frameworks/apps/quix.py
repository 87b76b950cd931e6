"""Quix Streams: forwards each value, and counts words behind a repartition topic."""

import threading

from quixstreams import Application, message_context
from quixstreams.state import State
from told import Countdown, done, options, tell

WORDS = 5


def word_of(value: str) -> str:
    return f"word-{int(value) % WORDS}"


def read(value: str) -> None:
    where = message_context()
    over.read(value, where.partition, where.offset)


def count(value: str, state: State) -> None:
    word = word_of(value)
    number = state.get(word, 0) + 1
    state.set(word, number)
    tell("count", word=word, count=number)


asked = options()
over = Countdown(asked)
app = Application(
    broker_address=asked.bootstrap,
    consumer_group=asked.group,
    auto_offset_reset="earliest",
    state_dir=asked.state,
)
source = app.topic(asked.topic, value_deserializer="str")
frame = app.dataframe(source)
if asked.do == "forward":
    target = app.topic(asked.out, value_serializer="str")
    frame.update(read).to_topic(target)
else:
    words = frame.group_by(word_of, name="word", key_serializer="str", key_deserializer="str")
    words.update(count, stateful=True)


def stop() -> None:
    over.over.wait()
    app.stop()


threading.Thread(target=stop, daemon=True).start()
app.run()
done()
