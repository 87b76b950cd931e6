import kafkajs from 'kafkajs'
import { tell, until } from '../told.js'

const TOPIC = kafkajs.ConfigResourceTypes.TOPIC
const SETTING = 'retention.ms'

export async function administer(asked, kafka) {
  const topic = asked.topic
  const admin = kafka.admin()
  await admin.connect()
  const retention = async () => {
    const resource = { type: TOPIC, name: topic, configNames: [SETTING] }
    const { resources } = await admin.describeConfigs(
      { resources: [resource], includeSynonyms: false })
    return resources[0].configEntries[0].configValue
  }
  const configEntries = [{ name: SETTING, value: '1000' }]
  await admin.createTopics({ topics: [{ topic, numPartitions: 2, configEntries }] })
  tell('step', { what: 'created' })
  await until(async () => await retention() === '1000')
  tell('step', { what: 'retention.ms=1000' })
  const longer = [{ name: SETTING, value: '2000' }]
  await admin.alterConfigs(
    { validateOnly: false, resources: [{ type: TOPIC, name: topic, configEntries: longer }] })
  await until(async () => await retention() === '2000')
  tell('step', { what: 'retention.ms=2000' })
  await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
  await until(async () => {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    return topics[0].partitions.length === 5
  })
  tell('step', { what: 'partitions=5' })
  await until(async () => (await admin.listTopics()).includes(topic))
  tell('step', { what: 'listed' })
  await admin.deleteTopics({ topics: [topic] })
  await until(async () => !(await admin.listTopics()).includes(topic))
  tell('step', { what: 'deleted' })
  await admin.disconnect()
}

export async function times(asked, kafka) {
  const admin = kafka.admin()
  await admin.connect()
  const [{ offset }] = await admin.fetchTopicOffsetsByTimestamp(asked.topic, Number(asked.at))
  const [{ high }] = await admin.fetchTopicOffsets(asked.topic)
  tell('offset', { offset: offset === high ? null : Number(offset) }) // it says the end for "none"
  await admin.disconnect()
}
