// The examples do what their READMEs say, and miss nothing while the server is killed.
//
// The agents are woken and follow a second stream. Each prints what it has processed. Whatever the server acknowledged must be there, in
// order and once: the server delivers at least once, and the agent skips what it has done.
//
// The order flow is two triggers: no order is lost, nothing is sold twice, and what is reserved is
// shipped.
//
// The fact watch belongs to a garden: it hears of every fact there once, and of none after it left.
import { execFile, spawn, type ChildProcess } from "node:child_process"
import { readFile, writeFile } from "node:fs/promises"
import { createInterface } from "node:readline"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { setTimeout as sleep } from "node:timers/promises"
import { afterEach, expect, test } from "vitest"
import { between, seeded } from "./chance"
import { freePort, Server } from "./server"

const EXAMPLES = join(import.meta.dirname, "../../examples")
const TASKS = 4
const KILLS = 4
const MESSAGES_PER_KILL = 40
/** Longer than any timeout of the protocol that a kill may leave to run out. */
const ARRIVAL_MAX_MS = 90_000
/** What would come twice comes by then. */
const SETTLE_MS = 1_500
const ORDERS = 120
/** Less than is ordered. */
const STOCK = 80
const FACTS_PER_KILL = 30
const ADMIN_KEY = "the-key-of-this-test-alone"
/** Which agent is woken, unless it is told otherwise. */
const AGENT_ID = "0f8fad5b-d9cb-469f-a165-70867728950e"

/** What each example does not start without. */
const secrets = {
  "agent-node": ["WEBHOOK_SECRET", "node", "agent.js"],
  "agent-python": ["WEBHOOK_SECRET", "python3", "agent.py"],
  "order-flow": ["TRIGGER_SECRET", "python3", "flow.py"],
  "fact-watch": ["WEBHOOK_SECRET", "python3", "watch.py"],
} as const

const agents = {
  "agent-node": { command: ["node", "agent.js"], prefix: "node" },
  "agent-python": { command: ["python3", "agent.py"], prefix: "python" },
} as const

let server: Server | undefined
let agent: Agent | undefined
afterEach(async () => {
  agent?.stop()
  await server?.dispose()
})

for (const [name, [variable, program, script]] of Object.entries(secrets)) {
  test(`${name} refuses to start without a secret`, async () => {
    const { WEBHOOK_SECRET: _, TRIGGER_SECRET: __, ...env } = process.env
    const child = spawn(program, [script], { cwd: join(EXAMPLES, name), env, stdio: ["ignore", "ignore", "pipe"] })
    let complaints = ""
    child.stderr!.on("data", (chunk) => (complaints += chunk))
    const code = await new Promise((resolve) => child.once("close", resolve))
    expect(complaints).toMatch(new RegExp(`^${variable} is not set; set it to .*\\n$`))
    expect(code).toBe(2)
  })
}

for (const [name, { command, prefix }] of Object.entries(agents)) {
  test(`${name} processes everything once across ${KILLS} kills`, async ({ onTestFailed }) => {
    const random = seeded(name)
    const running = (server = await Server.start())
    const port = await freePort()
    const secret = await subscribe(running.url, port, `${prefix}-agents/*?subscription=${prefix}-agent`)
    const settings = { PORT: String(port), WEBHOOK_SECRET: secret, REVEILLE_URL: running.url }
    const processed: Record<string, Array<number>> = {}
    const woken = (agent = await Agent.start(name, command, settings, (line) => {
      const { path, event } = JSON.parse(line) as { path: string; event: { n: number } }
      ;(processed[path] ??= []).push(event.n)
    }))
    onTestFailed(() => console.log(woken.complaints))
    expect((await fetch(`http://127.0.0.1:${port}`, { method: "POST", body: "{}" })).status).toBe(401)

    const writer = new Writer(running.url)
    const tasks = Array.from({ length: TASKS }, (_, task) => `task-${task}`)
    for (const task of tasks) await writer.create(`/${prefix}-agents/${task}`)
    for (const task of tasks) await writer.append(`/${prefix}-agents/${task}`)
    // Following begins at the tail, so nothing is put there before somebody follows.
    await woken.printed(TASKS)
    for (const task of tasks) await writer.create(`/${prefix}-tools/${task}`)

    for (let kill = 0; kill < KILLS; kill++) {
      const before = writer.appended
      const moment = before + between(random, 1, MESSAGES_PER_KILL)
      const killed = woken.printed(moment).then(async () => {
        await running.kill()
        await running.restart()
      })
      for (let n = 0; n < MESSAGES_PER_KILL; n++) {
        const task = tasks[between(random, 0, TASKS)]!
        await writer.append(`/${prefix}-${random() < 0.5 ? "agents" : "tools"}/${task}`)
      }
      await killed
    }
    await woken.printed(writer.appended)
    await sleep(SETTLE_MS)
    expect(processed).toEqual(writer.written)
  }, ARRIVAL_MAX_MS + 60_000)
}

test(`order-flow sells what there is, once, across ${KILLS} kills`, async ({ onTestFailed }) => {
  const random = seeded("order-flow")
  const running = (server = await Server.start())
  const reveille = commandLine(running.url)
  const { secret } = JSON.parse(await reveille("secret", "create", "--output", "json"))
  const port = await freePort()
  const settings = { PORT: String(port), TRIGGER_SECRET: secret, REVEILLE_URL: running.url }
  const shipped: Array<string> = []
  const flow = (agent = await Agent.start("order-flow", ["python3", "flow.py"], settings, (line) => {
    shipped.push((JSON.parse(line) as { shipped: string }).shipped)
  }))
  onTestFailed(() => console.log(flow.complaints))
  expect((await fetch(`http://127.0.0.1:${port}/ship`, { method: "POST", body: "{}" })).status).toBe(401)
  const file = join(tmpdir(), `order-flow-${port}.yaml`)
  const triggers = await readFile(join(EXAMPLES, "order-flow/triggers.yaml"), "utf8")
  await writeFile(file, triggers.replaceAll("127.0.0.1:3003", `127.0.0.1:${port}`))
  await reveille("trigger", "apply", "-f", file, "--enable")

  const ask = async (path: string, body: unknown) => {
    for (;;) {
      const init = { method: "POST", body: JSON.stringify(body) }
      const response = await fetch(`${running.url}/api/v1/${path}`, init).catch(() => undefined)
      const text = await response?.text().catch(() => undefined)
      if (response?.ok && text !== undefined) return JSON.parse(text)
      if (response && response.status < 500 && response.status !== 409) throw new Error(`${path}: ${text}`)
      await sleep(20)
    }
  }
  // Sent again until it is answered, and done once.
  const create = (path: string, data: unknown) =>
    ask("batch", { ops: [{ type: "create", path, data }], idempotencyKey: `create ${path}` })
  await create("stock/book", { left: STOCK })
  const kills = Array.from({ length: KILLS }, () => between(random, 0, ORDERS))
  for (let n = 0; n < ORDERS; n++) {
    await create(`orders/o${n}`, { item: "book", quantity: 1 })
    if (kills.includes(n)) {
      await running.kill()
      await running.restart()
    }
  }
  const states = async () => {
    const filters = [{ field: "state", op: "in", value: ["reserved", "refused"] }]
    const { documents } = await ask("query", { collection: "orders", filters, limit: 1000 })
    return documents as Array<{ id: string; state: string }>
  }
  const deadline = Date.now() + ARRIVAL_MAX_MS
  let done = await states()
  while ((done.length < ORDERS || shipped.length < STOCK) && Date.now() < deadline) {
    await sleep(100)
    done = await states()
  }
  await sleep(SETTLE_MS)
  const reserved = done.filter(({ state }) => state === "reserved").map(({ id }) => id)
  expect(done.length).toBe(ORDERS)
  expect(reserved.length).toBe(STOCK)
  expect(shipped.sort()).toEqual(reserved.sort())
  expect(JSON.parse(await reveille("doc", "get", "stock/book", "--output", "json")).left).toBe(0)
  expect(JSON.parse(await reveille("dlq", "list", "--output", "json"))).toEqual([])
}, ARRIVAL_MAX_MS + 60_000)

test(`fact-watch hears all while it belongs to the garden, across ${KILLS} kills`, async ({ onTestFailed }) => {
  const random = seeded("fact-watch")
  const settings = ["--auth", "keys", "--admin-key", ADMIN_KEY, "--allow-http-loopback"]
  const running = (server = await Server.start(...settings, "--wake-stream-template", "/agents/{wake_agent_id}"))
  const keyOf = async (role: string, entity: string) => {
    const args = ["--tenant", "acme", "--role", role, "--entity-uri", entity, "--output", "json"]
    return JSON.parse(await commandLine(running.url, ADMIN_KEY)("key", "create", ...args)).key as string
  }
  const [ada, scout] = [await keyOf("admin", "user:ada"), await keyOf("user", "agent:scout")]
  const reveille = commandLine(running.url, ada)
  await reveille("garden", "create", "atlas", "--scope", "team")
  await reveille("garden", "add", "atlas", "agent:scout")
  await reveille("token", "issue", "--subject", "agent:scout", "--object", "scope:garden:atlas")
  const port = await freePort()
  const secret = await subscribe(running.url, port, `agents/${AGENT_ID}?subscription=scout`, scout)
  const env = { PORT: String(port), WEBHOOK_SECRET: secret, REVEILLE_URL: running.url, REVEILLE_KEY: scout }
  const heard: Array<string> = []
  const watch = (agent = await Agent.start("fact-watch", ["python3", "watch.py"], env, (line) => {
    heard.push((JSON.parse(line) as { fact: string }).fact)
  }))
  onTestFailed(() => console.log(watch.complaints))
  expect((await fetch(`http://127.0.0.1:${port}`, { method: "POST", body: "{}" })).status).toBe(401)

  const ask = async (key: string, path: string, body?: unknown) => {
    for (;;) {
      const headers = { authorization: `Bearer ${key}` }
      const init = body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers }
      const response = await fetch(`${running.url}/v1/${path}`, init).catch(() => undefined)
      const text = await response?.text().catch(() => undefined)
      if (response?.ok && text !== undefined) return JSON.parse(text)
      if (response && response.status < 500) throw new Error(`${path}: ${text}`)
      await sleep(20)
    }
  }
  let facts = 0
  /** What is not answered is said again: it may have been said before, too. */
  const say = async (): Promise<string> => {
    const fact = { entity: "project:x", relation: `r${facts++}`, value: { type: "number", v: facts } }
    return (await ask(ada, "facts", { ...fact, scope: "team", garden_id: "atlas" })).id
  }
  const said: Array<string> = []
  for (let kill = 0; kill < KILLS; kill++) {
    const killed = watch.printed(said.length + between(random, 1, FACTS_PER_KILL)).then(async () => {
      await running.kill()
      await running.restart()
    })
    for (let n = 0; n < FACTS_PER_KILL; n++) said.push(await say())
    await killed
  }
  await watch.printed(said.length)
  const deadline = Date.now() + ARRIVAL_MAX_MS
  while (!said.every((fact) => heard.includes(fact)) && Date.now() < deadline) await sleep(100)
  expect(said.filter((fact) => !heard.includes(fact))).toEqual([])
  expect(heard.length).toBe(new Set(heard).size)

  await reveille("garden", "remove", "atlas", "agent:scout")
  const hidden = [await say()]
  await running.kill()
  await running.restart()
  hidden.push(await say())
  const cancelled = async () => (await ask(scout, "subscriptions")).subscriptions[0].cancelled_by
  while ((await cancelled()) === null && Date.now() < deadline) await sleep(100)
  await sleep(SETTLE_MS)
  expect(await cancelled()).toBe("acl_revoked")
  expect(heard.filter((fact) => hidden.includes(fact))).toEqual([])
  // It is asked for its rights before it begins, too.
  watch.stop()
  await expect(Agent.start("fact-watch", ["python3", "watch.py"], env, () => {})).rejects.toThrow("you may not read")
}, 2 * ARRIVAL_MAX_MS + 60_000)

/** The command line, by a key if the server wants one. */
function commandLine(url: string, key?: string): (...args: string[]) => Promise<string> {
  const env = { ...process.env, REVEILLE_URL: url, ...(key && { REVEILLE_KEY: key }) }
  return async (...args) => (await promisify(execFile)(process.env.REVEILLE_BIN!, args, { env })).stdout
}

async function subscribe(url: string, port: number, pattern: string, key?: string): Promise<string> {
  const response = await fetch(`${url}/${pattern}`, {
    method: "PUT",
    headers: { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) },
    body: JSON.stringify({ webhook: `http://127.0.0.1:${port}/` }),
  })
  expect(response.status).toBe(201)
  return ((await response.json()) as { webhook_secret: string }).webhook_secret
}

class Writer {
  /** By path, what was acknowledged. */
  readonly written: Record<string, Array<number>> = {}
  appended = 0
  readonly #url: string

  constructor(url: string) {
    this.#url = url
  }

  async create(path: string): Promise<void> {
    const headers = { "content-type": "application/json" }
    const response = await fetch(this.#url + path, { method: "PUT", headers })
    expect(response.status).toBe(201)
  }

  /** Repeats the append until it is answered; the server counts it once. */
  async append(path: string): Promise<void> {
    const numbers = (this.written[path] ??= [])
    const headers = {
      "content-type": "application/json",
      "producer-id": "writer",
      "producer-epoch": "0",
      "producer-seq": String(numbers.length),
    }
    const body = JSON.stringify({ n: numbers.length })
    for (;;) {
      const response = await fetch(this.#url + path, { method: "POST", headers, body }).catch(() => undefined)
      await response?.arrayBuffer()
      if (response?.ok) break
      if (response && response.status < 500) throw new Error(`${path}: ${response.status}`)
      await sleep(20)
    }
    numbers.push(numbers.length)
    this.appended++
  }
}

class Agent {
  complaints = ""
  readonly #child: ChildProcess
  #count = 0
  #changed = () => {}

  private constructor(child: ChildProcess, onLine: (line: string) => void) {
    this.#child = child
    createInterface(child.stdout!).on("line", (line) => {
      onLine(line)
      this.#count++
      this.#changed()
    })
  }

  static async start(
    name: string,
    command: readonly string[],
    settings: Record<string, string>,
    onLine: (line: string) => void
  ): Promise<Agent> {
    const [program, ...args] = command
    const child = spawn(program!, args, {
      cwd: join(EXAMPLES, name),
      env: { ...process.env, ...settings },
      stdio: ["ignore", "pipe", "pipe"],
    })
    const started = new Agent(child, onLine)
    await new Promise<void>((resolve, reject) => {
      child.once("error", reject)
      child.once("exit", (code) => reject(new Error(`${name} exited with ${code}:\n${started.complaints}`)))
      child.stderr!.on("data", (chunk) => {
        started.complaints += chunk
        if (started.complaints.includes("listening on ")) resolve()
      })
    })
    return started
  }

  /** Resolves when so many lines are there. */
  async printed(count: number): Promise<void> {
    const enough = new Promise<void>((resolve) => {
      this.#changed = () => {
        if (this.#count >= count) resolve()
      }
      this.#changed()
    })
    const late = sleep(ARRIVAL_MAX_MS, "late", { ref: false })
    if ((await Promise.race([enough, late])) === "late") {
      throw new Error(`${this.#count} of ${count} events were processed in time`)
    }
  }

  stop(): void {
    this.#child.kill("SIGKILL")
  }
}
