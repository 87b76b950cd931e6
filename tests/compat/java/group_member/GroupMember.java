// A member of a consumer group with Apache Kafka's own client, classic or KIP-848. Commits after
// each poll, without waiting.
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class GroupMember {
    public static void main(String[] args) {
        String protocol = args[0], bootstrap = args[1], topic = args[2], group = args[3];
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("group.protocol", protocol);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("fetch.max.wait.ms", "100");
        if (protocol.equals("classic")) config.put("heartbeat.interval.ms", "300");
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(config, bytes, bytes)) {
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                public void onPartitionsAssigned(Collection<TopicPartition> parts) {
                    System.out.println("assigned " + parts.size());
                }

                public void onPartitionsRevoked(Collection<TopicPartition> parts) {
                    if (!parts.isEmpty()) System.out.println("revoked " + parts.size());
                }
            });
            while (true) {
                var records = consumer.poll(Duration.ofMillis(100));
                for (var one : records)
                    System.out.println("read " + one.partition() + " " + one.offset());
                if (records.isEmpty()) continue;
                consumer.commitAsync((offsets, error) -> {
                    if (error != null) System.out.println("error commit " + error);
                });
            }
        }
    }
}
