package evenkeel;

import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.KafkaException;

final class Transact {
    static void run(Options options) {
        Properties properties = options.producer();
        properties.put("transactional.id", options.topic());
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
            producer.initTransactions();
        } catch (KafkaException refused) {
            Event.tell("refused", "text", String.valueOf(refused));
        }
    }
}
