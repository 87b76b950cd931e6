package evenkeel;

import java.time.Duration;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** Without a group. */
final class Consume {
    static void run(Options options) {
        TopicPartition partition = new TopicPartition(options.topic(), 0);
        long left = options.number("count", 0);
        long deadline = options.deadlineNs();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(options.consumer())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            while (left > 0 && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(200))) {
                    Event.read(one);
                    left--;
                }
            }
        }
    }
}
