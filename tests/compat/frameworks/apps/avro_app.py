"""confluent-kafka's Avro serializers, with the schemas in a registry that keeps them in a topic."""

from confluent_kafka import DeserializingConsumer, SerializingProducer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from told import Countdown, done, options, tell

SCHEMA = """
{"type": "record", "name": "Reading", "fields": [{"name": "number", "type": "string"}]}
"""
asked = options()
registry = SchemaRegistryClient({"url": asked.registry})
if asked.do == "produce":
    producer = SerializingProducer(
        {
            "bootstrap.servers": asked.bootstrap,
            "value.serializer": AvroSerializer(registry, SCHEMA),
        }
    )
    for number in range(asked.count):
        producer.produce(asked.topic, value={"number": f"{number:06}"})
    left = producer.flush(asked.seconds)
    assert left == 0, f"{left} are not acknowledged"
    for subject in registry.get_subjects():
        tell("subject", name=subject)
else:
    over = Countdown(asked)
    consumer = DeserializingConsumer(
        {
            "bootstrap.servers": asked.bootstrap,
            "group.id": asked.group,
            "auto.offset.reset": "earliest",
            "value.deserializer": AvroDeserializer(registry),
        }
    )
    consumer.subscribe([asked.topic])
    while not over.over.is_set():
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            over.read(message.value()["number"], message.partition(), message.offset())
    consumer.close()
done()
