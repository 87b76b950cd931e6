// What a program is asked, and what it tells: a JSON line for each event.
import { writeSync } from 'node:fs'
import { parseArgs } from 'node:util'

const text = { type: 'string' }

/** Every option of every `--do`; tests/compat/languages.py says what they mean. */
function options() {
  const names = ['do', 'bootstrap', 'topic', 'count', 'seconds', 'rate', 'acks', 'idempotent']
  names.push('codec', 'group', 'protocol', 'assignor', 'instance', 'at')
  const { values } = parseArgs({ options: Object.fromEntries(names.map(name => [name, text])) })
  return {
    ...values,
    brokers: values.bootstrap.split(','),
    count: Number(values.count ?? 0),
    seconds: Number(values.seconds ?? 30),
    rate: Number(values.rate ?? 100),
    acks: { 0: 0, 1: 1, all: -1 }[values.acks ?? 'all'],
    codec: values.codec ?? 'none',
    idempotent: values.idempotent === 'true'
  }
}

export function tell(event, fields = {}) {
  writeSync(1, JSON.stringify({ event, at: Date.now(), ...fields }) + '\n')
}

export const failed = error => tell('error', { text: `${error?.name}: ${error?.message}` })

export const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

/** Values to produce, in batches: so many, or those that are due until the time is over. */
export async function * batches(asked) {
  const begun = performance.now()
  const all = asked.count || asked.seconds * asked.rate
  for (let next = 0; next < all;) {
    const spent = (performance.now() - begun) / 1000
    const due = asked.count || Math.min(all, Math.floor(spent * asked.rate) + 1)
    const batch = Array.from({ length: due - next }, (_, at) => String(next + at).padStart(6, '0'))
    next = due
    if (batch.length) yield batch
    else await sleep(1)
  }
}

/** Any node answers, and it may be a moment behind the one that made the change. */
export async function until(condition) {
  for (let attempt = 0; attempt < 200; attempt++) {
    if (await condition().catch(() => false)) return
    await sleep(50)
  }
  throw new Error('it did not come true')
}

/** Does what is asked, and says so at the end. */
export async function main(programs) {
  const asked = options()
  try {
    await programs[asked.do](asked)
    tell('done')
    process.exit(0)
  } catch (error) {
    failed(error)
    console.error(error)
    process.exit(1)
  }
}
