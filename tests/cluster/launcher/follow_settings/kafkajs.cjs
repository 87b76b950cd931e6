// Writes a record and reads it back, with the settings of a file as it was written.
const [settings, topic] = process.argv.slice(2)
const { Kafka, logLevel } = require(process.env.KAFKAJS)
const kafka = new Kafka({ ...require(settings), logLevel: logLevel.NOTHING })

async function main () {
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic, messages: [{ value: 'from kafkajs' }] })
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: 'kafkajs' })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await new Promise(resolve => consumer.run({
    eachMessage: async ({ message }) => {
      if (message.value.toString() === 'from kafkajs') resolve()
    }
  }))
  await consumer.disconnect()
  console.log('read')
}

main().catch(error => {
  console.error(error.type ?? error.name)
  process.exit(1)
})
