import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Writes a record and reads it back, with the settings of a file as it was written. */
public class FollowSettings {
    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        try (var file = Files.newInputStream(Path.of(words[0]))) {
            settings.load(file);
        }
        settings.put("group.id", "java");
        settings.put("auto.offset.reset", "earliest");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(words[1], "from java")).get();
        }
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(words[1]));
            while (true) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    if (record.value().equals("from java")) {
                        System.out.println("read");
                        return;
                    }
                }
            }
        }
    }
}
