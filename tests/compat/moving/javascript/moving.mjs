// What a client of this language sees while masters move (benchmarks/handoff/programs.py).
//
//     node moving.mjs kafkajs|platformatic BOOTSTRAP TOPIC GROUP PARTITIONS RATE idempotent|plain
//
// Produces numbers, some to each partition in one send, and reads them in a consumer group, until
// its input ends. Says "a" (acknowledged) and "r" (read) with the time and the number, "e" for an
// error that the application is given, "w" for one that is only logged, "ready", and "end".

const [library, bootstrap, topic, group, partitions, rate, kind] = process.argv.slice(2)
const idempotent = kind === 'idempotent'
const IN_FLIGHT = idempotent ? 1 : 5 // kafkajs promises order for one at a time only
const say = (...words) => process.stdout.write(words.join(' ') + '\n')
const told = (letter, error) => say(letter, String(error?.message ?? error).split('\n')[0])
const pause = ms => new Promise(resolve => setTimeout(resolve, ms))

async function kafkajs (onNumber) {
  const { Kafka, Partitioners, logLevel } = (await import('kafkajs')).default
  const logCreator = () => ({ level, log }) => {
    if (level === logLevel.ERROR) told('w', log.error ?? log.message)
  }
  const kafka = new Kafka({ clientId: 'moving', brokers: bootstrap.split(','), logCreator })
  const createPartitioner = Partitioners.DefaultPartitioner
  const producer = kafka.producer({ idempotent, createPartitioner })
  await producer.connect()
  const consumer = kafka.consumer({ groupId: group })
  await consumer.subscribe({ topic, fromBeginning: true })
  consumer.on(consumer.events.CRASH, event => told('e', event.payload.error))
  await consumer.run({ eachMessage: async ({ message }) => onNumber(message.value) })
  const send = messages => producer.send({ topic, messages })
  return { send, close: () => Promise.all([producer.disconnect(), consumer.disconnect()]) }
}

async function platformatic (onNumber) {
  const { Consumer, Producer, stringSerializers } = await import('@platformatic/kafka')
  const common = { clientId: 'moving', bootstrapBrokers: bootstrap.split(',') }
  const producer = new Producer({ ...common, serializers: stringSerializers, idempotent })
  const consumer = new Consumer({ ...common, groupId: group })
  const stream = await consumer.consume({ topics: [topic], mode: 'earliest', autocommit: true })
  stream.on('data', message => onNumber(message.value))
  stream.on('error', error => told('e', error))
  const send = messages => producer.send({ messages: messages.map(one => ({ topic, ...one })) })
  return { send, close: () => Promise.all([producer.close(), consumer.close(true)]) }
}

let sent = 0
let underWay = 0
let stopped = false
const acked = new Set()
const read = new Set()
process.stdin.resume().on('end', () => { stopped = true })
process.on('unhandledRejection', error => told('e', error))

const client = await { kafkajs, platformatic }[library](value => {
  read.add(Number(value))
  say('r', Date.now(), value)
})

async function sendSome (numbers) {
  underWay += 1
  try {
    const messages = numbers.map(n => ({ value: String(n), partition: n % Number(partitions) }))
    await client.send(messages)
    for (const n of numbers) {
      acked.add(n)
      say('a', Date.now(), n)
    }
  } catch (error) {
    told('e', error)
  }
  underWay -= 1
}

while (sent < Number(partitions)) await sendSome([sent++]) // connect to all nodes first
say('ready')
const began = Date.now()
while (!stopped) {
  const due = Number(partitions) + Math.floor((Date.now() - began) * Number(rate) / 1000)
  if (underWay < IN_FLIGHT && due > sent) {
    const numbers = Array.from({ length: Math.min(due - sent, 200) }, (_, at) => sent + at)
    sent += numbers.length
    sendSome(numbers)
  }
  await pause(5)
}
for (let wait = 0; wait < 3000 && underWay > 0; wait += 1) await pause(10)
for (let wait = 0; wait < 1500 && [...acked].some(n => !read.has(n)); wait += 1) await pause(10)
say('end', sent)
await Promise.race([client.close(), pause(5000)])
process.exit(0)
