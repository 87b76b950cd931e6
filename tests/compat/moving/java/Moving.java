// What the Java client sees while masters move: as ../javascript/moving.mjs.
//
//     java -cp 'lib/*' Moving.java BOOTSTRAP TOPIC GROUP PARTITIONS RATE idempotent|plain

import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

public class Moving {
    static final Set<String> acked = ConcurrentHashMap.newKeySet(), read = ConcurrentHashMap.newKeySet();
    static volatile boolean stopped, closed;

    static synchronized void say(String words) {
        System.out.println(words);
        System.out.flush();
    }

    public static void main(String[] args) throws Exception {
        String topic = args[1], group = args[2];
        int partitions = Integer.parseInt(args[3]), rate = Integer.parseInt(args[4]);
        Properties common = new Properties();
        common.put("bootstrap.servers", args[0]);
        common.put("enable.idempotence", String.valueOf(args[5].equals("idempotent")));
        common.put("group.id", group);
        common.put("auto.offset.reset", "earliest");
        for (String side : List.of("key.serializer", "value.serializer"))
            common.put(side, "org.apache.kafka.common.serialization.StringSerializer");
        for (String side : List.of("key.deserializer", "value.deserializer"))
            common.put(side, "org.apache.kafka.common.serialization.StringDeserializer");
        Thread consuming = new Thread(() -> consume(common, topic));
        consuming.start();
        Thread waiting = new Thread(Moving::waitForEnd);
        waiting.setDaemon(true);
        waiting.start();
        KafkaProducer<String, String> producer = new KafkaProducer<>(common);
        say("ready");
        long began = System.currentTimeMillis();
        int sent = 0;
        while (!stopped) {
            for (long due = (System.currentTimeMillis() - began) * rate / 1000; sent < due; sent++) {
                String value = String.valueOf(sent);
                producer.send(new ProducerRecord<>(topic, sent % partitions, null, value), (done, error) -> {
                    if (error != null) {
                        say("e " + error.toString().lines().findFirst().get());
                        return;
                    }
                    acked.add(value);
                    say("a " + System.currentTimeMillis() + " " + value);
                });
            }
            Thread.sleep(5);
        }
        producer.close(Duration.ofSeconds(30));
        for (int wait = 0; wait < 1500 && !read.containsAll(acked); wait++) Thread.sleep(10);
        closed = true;
        consuming.join(5000);
        say("end " + sent);
        System.exit(0);
    }

    static void consume(Properties common, String topic) {
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(common)) {
            consumer.subscribe(List.of(topic));
            while (!closed) {
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(100))) {
                    read.add(one.value());
                    say("r " + System.currentTimeMillis() + " " + one.value());
                }
            }
        } catch (Exception error) {
            say("e " + error.toString().lines().findFirst().get());
        }
    }

    static void waitForEnd() {
        try {
            while (System.in.read() >= 0) { }
        } catch (java.io.IOException error) {
            say("e " + error);
        }
        stopped = true;
    }
}
