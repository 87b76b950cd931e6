import { Consumer, stringDeserializers } from '@platformatic/kafka'
import { failed, sleep, tell } from '../told.js'

/** It knows no consumer without a group; one that reads by hand never joins it. */
export function consume(asked) {
  const offsets = [{ topic: asked.topic, partition: 0, offset: 0n }]
  return read({ ...asked, group: asked.topic }, { mode: 'manual', offsets })
}

export const group = asked =>
  read(asked, { mode: 'committed', fallbackMode: 'earliest', autocommit: false })

async function read(asked, how) {
  const consumer = new Consumer({
    clientId: 'compat',
    bootstrapBrokers: asked.brokers,
    groupId: asked.group,
    groupProtocol: asked.protocol ?? 'classic',
    groupInstanceId: asked.instance,
    deserializers: stringDeserializers
  })
  // Where the broker shares out, a member joins once, and no event says what it is given later.
  let told
  const tellOwned = () => {
    const owned = consumer.assignments?.find(one => one.topic === asked.topic)?.partitions ?? []
    if (String(owned) === told) return
    told = String(owned)
    tell('rebalance', { partitions: owned })
  }
  consumer.on('consumer:group:join', tellOwned)
  const stream = await consumer.consume({ topics: [asked.topic], ...how })
  let left = asked.count
  const uncommitted = new Map()
  stream.on('error', failed)
  stream.on('data', message => {
    if (left === 0) return
    left--
    const { value, partition, offset } = message
    tell('read', { value, partition, offset: Number(offset) })
    uncommitted.set(partition, message)
  })
  const deadline = performance.now() + asked.seconds * 1000
  while (left > 0 && performance.now() < deadline) {
    await sleep(20)
    tellOwned()
    await commit(uncommitted)
  }
  await commit(uncommitted)
  await consumer.close(true)
}

/** The newest of each partition. */
async function commit(uncommitted) {
  const newest = [...uncommitted.values()]
  uncommitted.clear()
  await Promise.all(newest.map(message => message.commit())).catch(failed)
}
