import { Admin, ConfigResourceTypes, IncrementalAlterConfigOperationTypes } from '@platformatic/kafka'
import { tell, until } from '../told.js'

const SETTING = 'retention.ms'
const open = asked => new Admin({ clientId: 'compat', bootstrapBrokers: asked.brokers })

export async function administer(asked) {
  const topic = asked.topic
  const admin = open(asked)
  const resource = { resourceType: ConfigResourceTypes.TOPIC, resourceName: topic }
  const retention = async () => {
    const [described] = await admin.describeConfigs(
      { resources: [{ ...resource, configurationKeys: [SETTING] }] })
    return described.configs[0].value
  }
  await admin.createTopics(
    { topics: [topic], partitions: 2, configs: [{ name: SETTING, value: '1000' }] })
  tell('step', { what: 'created' })
  await until(async () => await retention() === '1000')
  tell('step', { what: 'retention.ms=1000' })
  const set = IncrementalAlterConfigOperationTypes.SET
  const configs = [{ name: SETTING, configOperation: set, value: '2000' }]
  await admin.incrementalAlterConfigs({ resources: [{ ...resource, configs }] })
  await until(async () => await retention() === '2000')
  tell('step', { what: 'retention.ms=2000' })
  await admin.createPartitions({ topics: [{ name: topic, count: 5 }] })
  await until(async () => {
    const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true })
    return topics.get(topic).partitionsCount === 5
  })
  tell('step', { what: 'partitions=5' })
  await until(async () => (await admin.listTopics()).includes(topic))
  tell('step', { what: 'listed' })
  await admin.deleteTopics({ topics: [topic] })
  await until(async () => !(await admin.listTopics()).includes(topic))
  tell('step', { what: 'deleted' })
  await admin.close()
}

export async function times(asked) {
  const admin = open(asked)
  const partitions = [{ partitionIndex: 0, timestamp: BigInt(asked.at) }]
  const [{ partitions: [{ offset }] }] = await admin.listOffsets(
    { topics: [{ name: asked.topic, partitions }] })
  tell('offset', { offset: offset < 0n ? null : Number(offset) })
  await admin.close()
}
