package evenkeel;

import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;

/** A member of a share group (KIP-932): refused, and at once. */
final class Share {
    static void run(Options options) {
        Properties properties = options.consumer();
        properties.remove("auto.offset.reset");
        properties.remove("enable.auto.commit");
        properties.put("group.id", options.text("group", options.topic()));
        long deadline = options.deadlineNs();
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(properties)) {
            consumer.subscribe(List.of(options.topic()));
            while (System.nanoTime() < deadline) {
                consumer.poll(Duration.ofMillis(200));
            }
        } catch (KafkaException refused) {
            Event.tell("refused", "text", String.valueOf(refused));
        }
    }
}
