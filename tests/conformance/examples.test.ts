// The examples are woken, follow a second stream, and miss nothing while the server is killed.
//
// Each agent prints what it has processed. Whatever the server acknowledged must be there, in
// order and once: the server delivers at least once, and the agent skips what it has done.
import { spawn, type ChildProcess } from "node:child_process"
import { createInterface } from "node:readline"
import { join } from "node:path"
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

for (const [name, { command, prefix }] of Object.entries(agents)) {
  test(`${name} refuses to start without a secret`, async () => {
    const { WEBHOOK_SECRET: _, ...env } = process.env
    const [program, ...args] = command
    const child = spawn(program, args, { cwd: join(EXAMPLES, name), env, stdio: ["ignore", "ignore", "pipe"] })
    let complaints = ""
    child.stderr!.on("data", (chunk) => (complaints += chunk))
    const code = await new Promise((resolve) => child.once("close", resolve))
    expect(complaints).toMatch(/^WEBHOOK_SECRET is not set; set it to .*\n$/)
    expect(code).toBe(2)
  })

  test(`${name} processes everything once across ${KILLS} kills`, async ({ onTestFailed }) => {
    const random = seeded(name)
    const running = (server = await Server.start())
    const port = await freePort()
    const secret = await subscribe(running.url, port, prefix)
    const woken = (agent = await Agent.start(name, command, port, secret, running.url))
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
    expect(woken.processed).toEqual(writer.written)
  }, ARRIVAL_MAX_MS + 60_000)
}

async function subscribe(url: string, port: number, prefix: string): Promise<string> {
  const response = await fetch(`${url}/${prefix}-agents/*?subscription=${prefix}-agent`, {
    method: "PUT",
    headers: { "content-type": "application/json" },
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
  /** By path, what it says that it has processed. */
  readonly processed: Record<string, Array<number>> = {}
  complaints = ""
  readonly #child: ChildProcess
  #count = 0
  #changed = () => {}

  private constructor(child: ChildProcess) {
    this.#child = child
    createInterface(child.stdout!).on("line", (line) => {
      const { path, event } = JSON.parse(line) as { path: string; event: { n: number } }
      ;(this.processed[path] ??= []).push(event.n)
      this.#count++
      this.#changed()
    })
  }

  static async start(name: string, command: readonly string[], port: number, secret: string, url: string): Promise<Agent> {
    const [program, ...args] = command
    const settings = { PORT: String(port), WEBHOOK_SECRET: secret, REVEILLE_URL: url }
    const child = spawn(program!, args, {
      cwd: join(EXAMPLES, name),
      env: { ...process.env, ...settings },
      stdio: ["ignore", "pipe", "pipe"],
    })
    const started = new Agent(child)
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
