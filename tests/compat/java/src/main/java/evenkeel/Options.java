package evenkeel;

import java.util.HashMap;
import java.util.Map;
import java.util.Properties;

/** `--name value` pairs, and what every Kafka client here begins with. */
final class Options {
    private final Map<String, String> values = new HashMap<>();

    Options(String[] words) {
        for (int at = 0; at + 1 < words.length; at += 2) {
            values.put(words[at].substring(2), words[at + 1]);
        }
    }

    String text(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    long number(String name, long otherwise) {
        return Long.parseLong(text(name, Long.toString(otherwise)));
    }

    String topic() {
        return values.get("topic");
    }

    long deadlineNs() {
        return System.nanoTime() + number("seconds", 30) * 1_000_000_000L;
    }

    /** Everything else keeps the library's default. */
    Properties client() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", values.get("bootstrap"));
        return properties;
    }

    Properties consumer() {
        Properties properties = client();
        String text = "org.apache.kafka.common.serialization.StringDeserializer";
        properties.put("key.deserializer", text);
        properties.put("value.deserializer", text);
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        return properties;
    }

    Properties producer() {
        Properties properties = client();
        String text = "org.apache.kafka.common.serialization.StringSerializer";
        properties.put("key.serializer", text);
        properties.put("value.serializer", text);
        return properties;
    }
}
