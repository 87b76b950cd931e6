import { failed, sleep, tell } from '../told.js'

/** kafkajs knows no consumer without a group. */
export const consume = (asked, kafka) => group({ ...asked, group: asked.topic }, kafka)

export async function group(asked, kafka) {
  const consumer = kafka.consumer({ groupId: asked.group })
  let left = asked.count
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) =>
    tell('rebalance', { partitions: payload.memberAssignment[asked.topic] ?? [] }))
  consumer.on(consumer.events.CRASH, ({ payload }) => failed(payload.error))
  await consumer.connect()
  await consumer.subscribe({ topic: asked.topic, fromBeginning: true })
  await consumer.run({
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, isRunning, isStale }) => {
      for (const { value, offset } of batch.messages) {
        if (!isRunning() || isStale() || left === 0) break
        left--
        tell('read', { value: String(value), partition: batch.partition, offset: Number(offset) })
        resolveOffset(offset)
      }
    }
  })
  const deadline = performance.now() + asked.seconds * 1000
  while (left > 0 && performance.now() < deadline) await sleep(20)
  await consumer.disconnect()
}
