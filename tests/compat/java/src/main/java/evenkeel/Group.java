package evenkeel;

import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** A member of a consumer group, of either protocol. */
final class Group implements ConsumerRebalanceListener {
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "RangeAssignor", "roundrobin", "RoundRobinAssignor",
        "sticky", "StickyAssignor", "cooperative-sticky", "CooperativeStickyAssignor");
    private static final long COMMIT_EVERY_NS = 1_000_000_000L;
    private boolean changed;

    static void run(Options options) {
        Group listener = new Group();
        long left = options.number("count", 0);
        long deadline = options.deadlineNs();
        long committed = System.nanoTime();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings(options))) {
            consumer.subscribe(List.of(options.topic()), listener);
            while (left > 0 && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(100))) {
                    Event.read(one);
                    left--;
                }
                if (listener.changed) {
                    List<Integer> owned =
                        consumer.assignment().stream().map(TopicPartition::partition).toList();
                    Event.tell("rebalance", "partitions", owned);
                    listener.changed = false;
                }
                if (System.nanoTime() - committed > COMMIT_EVERY_NS) {
                    consumer.commitAsync();
                    committed = System.nanoTime();
                }
            }
            consumer.commitSync();
        }
    }

    private static Properties settings(Options options) {
        Properties properties = options.consumer();
        properties.put("group.id", options.text("group", ""));
        properties.put("group.protocol", options.text("protocol", "classic"));
        String assignor = options.text("assignor", "");
        if (!assignor.isEmpty()) {
            properties.put("partition.assignment.strategy",
                "org.apache.kafka.clients.consumer." + ASSIGNORS.get(assignor));
        }
        if (!options.text("instance", "").isEmpty()) {
            properties.put("group.instance.id", options.text("instance", ""));
        }
        return properties;
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        changed = true;
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        changed = true;
    }
}
