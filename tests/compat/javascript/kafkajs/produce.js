import { batches, failed, tell } from '../told.js'
import { codec } from './codecs.js'

export async function produce(asked, kafka) {
  const compression = await codec(asked.codec)
  const producer = kafka.producer(
    asked.idempotent ? { idempotent: true, maxInFlightRequests: 1 } : {})
  await producer.connect()
  for await (const values of batches(asked)) {
    const messages = values.map(value => ({ value }))
    try {
      const answer = await producer.send(
        { topic: asked.topic, acks: asked.acks, compression, messages })
      if (asked.acks === 0) continue
      const [{ partition, baseOffset }] = answer
      values.forEach((value, at) =>
        tell('acked', { value, partition, offset: Number(baseOffset) + at }))
    } catch (error) {
      failed(error)
    }
  }
  await producer.disconnect()
}

export async function transact(asked, kafka) {
  const producer = kafka.producer(
    { transactionalId: asked.topic, idempotent: true, maxInFlightRequests: 1 })
  try {
    await producer.connect()
    await producer.transaction()
  } catch (error) {
    tell('refused', { text: error.message })
  }
}
