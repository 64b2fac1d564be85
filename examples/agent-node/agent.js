// A consumer in the manner of a serverless function: reveille wakes it with a POST, it reads what
// is new, says how far it came, and is done. It keeps no connection while nothing happens.
import { createHmac, timingSafeEqual } from "node:crypto"
import { createServer } from "node:http"
import { setTimeout as sleep } from "node:timers/promises"
import { stream } from "@durable-streams/client"

const PORT = Number(process.env.PORT ?? 3000)
const SECRET = process.env.WEBHOOK_SECRET
const SERVER = process.env.REVEILLE_URL ?? "http://127.0.0.1:4437"
const SIGNATURE_AGE_MAX_S = 300
const RETRY_MS = 200

if (!SECRET) {
  console.error("WEBHOOK_SECRET is not set; set it to the webhook_secret that was shown when the subscription was made")
  process.exit(2)
}

/** How far each stream was processed here. A real agent keeps this where it keeps its results. */
const processed = new Map()

/** What the agent is for. */
function handle(path, event) {
  console.log(JSON.stringify({ path, event }))
}

function isSigned(header, body) {
  // While one secret takes over from another there are two signatures: one that is good is enough.
  const [, time, signatures] = /^t=(\d+)((?:,sha256=[0-9a-f]{64})+)$/.exec(header ?? "") ?? []
  if (!signatures || Math.abs(Date.now() / 1000 - Number(time)) > SIGNATURE_AGE_MAX_S) return false
  const expected = createHmac("sha256", SECRET).update(`${time}.`).update(body).digest()
  return signatures.match(/[0-9a-f]{64}/g).some((it) => timingSafeEqual(Buffer.from(it, "hex"), expected))
}

/** Whatever fails for a while is tried again: callbacks and reads may be repeated at will. */
async function persistently(attempt) {
  for (;;) {
    try {
      return await attempt()
    } catch (error) {
      // `fetch` throws a TypeError when there is no answer.
      if (!(error instanceof TypeError || error.status >= 500)) throw error
      await sleep(RETRY_MS)
    }
  }
}

async function wake({ callback, token, epoch, wake_id, primary_stream }) {
  const call = (body) =>
    persistently(async () => {
      const answer = await fetch(callback, {
        method: "POST",
        headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
        body: JSON.stringify({ epoch, ...body }),
      })
      if (answer.status >= 500) throw new TypeError(`answered ${answer.status}`)
      const said = await answer.json()
      token = said.token ?? token
      // A stale epoch or a claim that came too late: another wake has the work, so leave it.
      if (!said.ok) throw new Error(`${said.error.code}: ${said.error.message}`)
      return said
    })

  // The first callback claims the wake. Following a stream twice changes nothing.
  const tools = primary_stream.replace(/^\/node-agents\//, "/node-tools/")
  const { streams } = await call({ wake_id, subscribe: [tools] })
  const acks = await Promise.all(streams.map(read))
  // What came in after the read is still pending: reveille wakes us again for it.
  await call({ acks: acks.filter(({ offset }) => offset !== "-1"), done: true })
}

/** Offsets are made to be compared as text; "-1" is before all of them. */
const later = (one, other = one) => (other > one ? other : one)

/** Processes what a stream holds behind the offset; delivery is at least once, this is once. */
async function read({ path, offset }) {
  for (;;) {
    const from = later(offset, processed.get(path))
    const batch = await persistently(async () => {
      const response = await stream({ url: SERVER + path, offset: from, live: false })
      return { events: await response.json(), offset: response.offset }
    }).catch((error) => {
      // One may follow a stream before it is made.
      if (error.status === 404) return { events: [], offset: from }
      throw error
    })
    if (later(offset, processed.get(path)) !== from) continue // A second wake was here meanwhile.
    for (const event of batch.events) handle(path, event)
    processed.set(path, batch.offset)
    return { path, offset: batch.offset }
  }
}

const server = createServer(async (request, response) => {
  const body = Buffer.concat(await request.toArray())
  if (!isSigned(request.headers["webhook-signature"], body)) return response.writeHead(401).end()
  const failed = await wake(JSON.parse(body)).then(() => undefined, (error) => error)
  if (failed) console.error(String(failed))
  response.writeHead(failed ? 500 : 200, { "content-type": "application/json" }).end("{}")
})
server.listen(PORT, "127.0.0.1", () => console.error(`listening on ${server.address().port}`))
