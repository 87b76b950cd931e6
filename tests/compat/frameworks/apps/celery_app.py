"""Celery over kombu's transport for Kafka: a worker, and who sends it tasks."""

import threading

from celery import Celery
from celery.worker import state
from told import Countdown, done, options, tell

asked = options()
app = Celery("compat", broker=f"confluentkafka://{asked.brokers[0]}")
app.conf.task_default_queue = asked.topic
app.conf.task_ignore_result = True
app.conf.worker_redirect_stdouts = False  # what this tells is no log
app.conf.worker_enable_remote_control = False  # it needs fanout, which this transport has not
# The transport's address names one node; its options may name all.
common = {"bootstrap.servers": asked.bootstrap}
app.conf.broker_transport_options = {"kafka_common_config": common}


@app.task(name="value")
def value(text: str) -> None:
    over.read(text, 0, -1)


def stop() -> None:
    over.over.wait()
    state.should_stop = 0


if asked.do == "send":
    for number in range(asked.count):
        value.delay(f"{number:06}")
        tell("acked", value=f"{number:06}", partition=0, offset=-1)
else:
    over = Countdown(asked)
    threading.Thread(target=stop, daemon=True).start()
    worker = app.Worker(
        pool="solo",
        concurrency=1,
        loglevel="WARNING",
        without_mingle=True,
        without_gossip=True,
        without_heartbeat=True,
    )
    worker.start()
done()
