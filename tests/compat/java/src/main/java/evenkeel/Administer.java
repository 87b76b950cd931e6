package evenkeel;

import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

final class Administer {
    private static final String SETTING = "retention.ms";

    static void run(Options options) throws Exception {
        String topic = options.topic();
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = Admin.create(options.client())) {
            NewTopic wanted = new NewTopic(topic, 2, (short) 1).configs(Map.of(SETTING, "1000"));
            admin.createTopics(List.of(wanted)).all().get();
            Event.tell("step", "what", "created");
            until(() -> retention(admin, resource).equals("1000"));
            Event.tell("step", "what", "retention.ms=1000");
            AlterConfigOp set =
                new AlterConfigOp(new ConfigEntry(SETTING, "2000"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
            until(() -> retention(admin, resource).equals("2000"));
            Event.tell("step", "what", "retention.ms=2000");
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
            until(() -> admin.describeTopics(List.of(topic)).allTopicNames().get()
                .get(topic).partitions().size() == 5);
            Event.tell("step", "what", "partitions=5");
            until(() -> admin.listTopics().names().get().contains(topic));
            Event.tell("step", "what", "listed");
            admin.deleteTopics(List.of(topic)).all().get();
            until(() -> !admin.listTopics().names().get().contains(topic));
            Event.tell("step", "what", "deleted");
        }
    }

    private static String retention(Admin admin, ConfigResource resource) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get()
            .get(resource).get(SETTING).value();
    }

    /** Any node answers, and it may be a moment behind the one that made the change. */
    private static void until(Callable<Boolean> condition) throws Exception {
        for (int attempt = 0; attempt < 100; attempt++) {
            try {
                if (condition.call()) {
                    return;
                }
            } catch (java.util.concurrent.ExecutionException error) {
                if (!(error.getCause() instanceof UnknownTopicOrPartitionException)) {
                    throw error;
                }
            }
            Thread.sleep(50);
        }
        throw new IllegalStateException("it did not come true");
    }
}
