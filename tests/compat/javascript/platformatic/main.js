// @platformatic/kafka, with its defaults wherever it is not asked for something else.
import { main } from '../told.js'
import { administer, times } from './admin.js'
import { consume, group } from './consume.js'
import { produce, transact } from './produce.js'

await main({ produce, consume, group, times, admin: administer, transact })
