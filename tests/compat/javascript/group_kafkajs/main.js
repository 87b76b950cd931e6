// A member of a consumer group with kafkajs. Commits ten times a second.
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, topic, groupId] = process.argv.slice(2);
const kafka = new Kafka({ brokers: bootstrap.split(","), logLevel: logLevel.NOTHING });
const consumer = kafka.consumer({ groupId, heartbeatInterval: 300, maxWaitTimeInMs: 100 });
const say = (...words) => console.log(...words);

let assigned = false;
consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  if (assigned) say("revoked");
  assigned = true;
  say("assigned", (payload.memberAssignment[topic] || []).length);
});
consumer.on(consumer.events.CRASH, ({ payload }) => say("error", payload.error.message));
consumer.on(consumer.events.REQUEST_TIMEOUT, () => say("error timeout"));

async function main() {
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    autoCommitInterval: 100,
    eachMessage: async ({ partition, message }) => say("read", partition, message.offset),
  });
}

main();
