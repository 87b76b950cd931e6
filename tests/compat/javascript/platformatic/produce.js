import { Producer, stringSerializers } from '@platformatic/kafka'
import { batches, failed, tell } from '../told.js'

const settings = asked => ({
  clientId: 'compat', bootstrapBrokers: asked.brokers, serializers: stringSerializers
})

export async function produce(asked) {
  const producer = new Producer({
    ...settings(asked), acks: asked.acks, idempotent: asked.idempotent, compression: asked.codec
  })
  for await (const values of batches(asked)) {
    const messages = values.map(value => ({ topic: asked.topic, value }))
    try {
      const { offsets } = await producer.send({ messages })
      if (asked.acks === 0) continue
      const [{ partition, offset }] = offsets
      values.forEach((value, at) =>
        tell('acked', { value, partition, offset: Number(offset) + at }))
    } catch (error) {
      failed(error)
    }
  }
  await producer.close()
}

export async function transact(asked) {
  const producer = new Producer(
    { ...settings(asked), transactionalId: asked.topic, idempotent: true })
  try {
    const transaction = await producer.beginTransaction()
    await transaction.send({ messages: [{ topic: asked.topic, value: 'never' }] })
  } catch (error) {
    tell('refused', { text: error.errors?.map(one => one.message).join('; ') ?? error.message })
  }
}
