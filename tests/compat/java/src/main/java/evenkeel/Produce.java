package evenkeel;

import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

final class Produce {
    static void run(Options options) throws Exception {
        Properties properties = options.producer();
        properties.put("acks", options.text("acks", "all"));
        properties.put("enable.idempotence", options.text("idempotent", "false"));
        properties.put("compression.type", options.text("codec", "none"));
        long count = options.number("count", Long.MAX_VALUE);
        long rate = options.number("rate", 0);
        long began = System.nanoTime();
        long deadline = options.deadlineNs();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
            for (long number = 0; number < count && System.nanoTime() < deadline; number++) {
                send(producer, options.topic(), "%06d".formatted(number));
                if (rate > 0) {
                    long due = began + (number + 1) * 1_000_000_000L / rate;
                    Thread.sleep(Math.max(0, due - System.nanoTime()) / 1_000_000);
                }
            }
        }
    }

    private static void send(KafkaProducer<String, String> producer, String topic, String value) {
        producer.send(new ProducerRecord<>(topic, 0, null, value), (where, error) -> {
            if (error == null) {
                Event.tell("acked", "value", value, "partition", where.partition(),
                    "offset", where.offset());
            } else {
                Event.error(error);
            }
        });
    }
}
