package evenkeel;

import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.TimeWindows;

/** Counts values, in all and by windows of ten seconds: two stores with their changelog topics,
 * behind a repartition topic. */
final class Streams {
    static void run(Options options) throws Exception {
        Properties properties = options.client();
        properties.put("application.id", options.text("group", ""));
        properties.put("state.dir", options.text("state", ""));
        properties.put("default.key.serde", Serdes.StringSerde.class.getName());
        properties.put("default.value.serde", Serdes.StringSerde.class.getName());
        properties.put("commit.interval.ms", "500");
        properties.put("statestore.cache.max.bytes", "0"); // each update is told
        properties.put("auto.offset.reset", "earliest");
        properties.put("session.timeout.ms", "10000"); // Streams leaves no group when it closes
        StreamsBuilder builder = new StreamsBuilder();
        KGroupedStream<String, String> values = builder.<String, String>stream(options.topic())
            .groupBy((key, value) -> "word-" + Long.parseLong(value) % 5);
        values.count(Materialized.as("all")).toStream()
            .foreach((word, count) -> Event.tell("count", "word", word, "count", count));
        values.windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofSeconds(10)))
            .count(Materialized.as("windows")).toStream()
            .foreach((word, count) -> Event.tell("window", "word", word.key(),
                "start", word.window().start(), "count", count));
        try (KafkaStreams streams = new KafkaStreams(builder.build(), properties)) {
            streams.setUncaughtExceptionHandler(error -> {
                Event.error(error);
                return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.start();
            Thread.sleep(options.number("seconds", 30) * 1_000);
        }
    }
}
