package evenkeel;

import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;

final class Times {
    static void run(Options options) {
        TopicPartition partition = new TopicPartition(options.topic(), 0);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(options.consumer())) {
            OffsetAndTimestamp found =
                consumer.offsetsForTimes(Map.of(partition, options.number("at", 0))).get(partition);
            Event.tell("offset", "offset", found == null ? null : found.offset());
        }
    }
}
