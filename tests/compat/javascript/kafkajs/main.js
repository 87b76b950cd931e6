// kafkajs, with its defaults wherever it is not asked for something else.
import kafkajs from 'kafkajs'
import { main } from '../told.js'
import { administer, times } from './admin.js'
import { consume, group } from './consume.js'
import { produce, transact } from './produce.js'

const { Kafka, logLevel } = kafkajs

const withClient = program => asked =>
  program(asked, new Kafka({ brokers: asked.brokers, logLevel: logLevel.ERROR, logCreator }))

/** What it logs would mix with what the program tells. */
const logCreator = () => ({ log }) => console.error(log.message, log.error ?? '')

await main({
  produce: withClient(produce),
  consume: withClient(consume),
  group: withClient(group),
  times: withClient(times),
  admin: withClient(administer),
  transact: withClient(transact)
})
