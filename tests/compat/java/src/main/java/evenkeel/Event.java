package evenkeel;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/** One JSON line on the standard output. */
final class Event {
    private static final ObjectMapper JSON = new ObjectMapper();

    static synchronized void tell(String event, Object... namesAndValues) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("event", event);
        for (int at = 0; at < namesAndValues.length; at += 2) {
            fields.put((String) namesAndValues[at], namesAndValues[at + 1]);
        }
        try {
            System.out.println(JSON.writeValueAsString(fields));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    static void read(ConsumerRecord<String, String> one) {
        tell("read", "value", one.value(), "partition", one.partition(), "offset", one.offset());
    }

    static void error(Throwable error) {
        tell("error", "text", String.valueOf(error));
    }
}
