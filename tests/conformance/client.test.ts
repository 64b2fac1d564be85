// The official client writes and tails a stream while the server is killed again and again.
//
// What a careful application does, and no more: the producer repeats a request that got no answer,
// the reader remembers the offset of the last batch it was handed and resumes from it. Then nothing
// may be missing, nothing may come twice, and the order must hold.
import { afterEach, expect, test } from "vitest"
import {
  createFetchWithConsumedBody,
  DurableStream,
  FetchError,
  IdempotentProducer,
  stream,
} from "@durable-streams/client"
import { between, seeded } from "./chance"
import { Server } from "./server"

const KILLS = 6
const MESSAGES_PER_KILL = 600

type Message = { n: number; text: string }
type Fetch = typeof fetch

let running: Server | undefined
afterEach(() => running?.dispose())

for (const mode of ["sse", "long-poll"] as const) {
  test(`a ${mode} reader misses and repeats nothing across ${KILLS} kills`, async ({ onTestFailed }) => {
    const random = seeded(`client ${mode}`)
    const server = (running = await Server.start())
    const url = `${server.url}/agents/${mode}`
    const handle = await DurableStream.create({ url, contentType: "application/json" })

    const writer = new Writer(handle)
    const reader = new Reader(url, mode, server)
    const finished = reader.run()
    onTestFailed(() => {
      const [starts, read, sent] = [server.starts, reader.read.count, writer.sent.count]
      console.log(`start ${starts} of the server: ${sent} requests sent, ${read} messages read`)
    })
    // A reader or a writer that failed ends the test at once: what it waits for will not come.
    const unlessFailed = <T>(event: Promise<T>) =>
      Promise.race([event, finished.then(() => event), writer.failed])

    for (let kill = 0; kill < KILLS; kill++) {
      // Only a reader that is live again can have its connection cut.
      await unlessFailed(reader.liveIn.reaches(server.starts))
      const last = kill === KILLS - 1
      const offered = MESSAGES_PER_KILL - (last ? 1 : 0)
      const sent = writer.sent.count
      writer.offer(offered)
      if (last) {
        // The final message and the close are one request; it is cut off in the middle.
        void writer.close()
        await unlessFailed(writer.closing.reaches(1))
      } else if (kill % 2 === 0) {
        await unlessFailed(reader.read.reaches(kill * MESSAGES_PER_KILL + between(random, 1, offered)))
      } else {
        await unlessFailed(writer.sent.reaches(sent + between(random, 1, offered / Writer.PER_REQUEST)))
      }
      await server.kill()
      await server.restart()
    }

    await unlessFailed(writer.close())
    await unlessFailed(finished)
    const numbers = reader.messages.map((message) => message.n)
    expect(numbers).toEqual(Array.from({ length: KILLS * MESSAGES_PER_KILL }, (_, n) => n))
    for (const message of reader.messages) expect(message).toEqual(writer.message(message.n))

    // The client did not fall back from one kind of tailing to the other.
    expect([...reader.liveModes]).toEqual([mode])

    const again = await stream<Message>({ url, offset: "-1", live: false })
    expect(await again.json()).toEqual(reader.messages)
  }, 90_000)
}

/** A number that only grows, and that others can wait for. */
class Counter {
  count = 0
  #waiting: Array<{ at: number; resolve: () => void }> = []

  add(more = 1): void {
    this.raise(this.count + more)
  }

  raise(to: number): void {
    this.count = Math.max(this.count, to)
    const due = this.#waiting.filter(({ at }) => at <= this.count)
    this.#waiting = this.#waiting.filter(({ at }) => at > this.count)
    for (const { resolve } of due) resolve()
  }

  reaches(at: number): Promise<void> {
    if (at <= this.count) return Promise.resolve()
    return new Promise((resolve) => this.#waiting.push({ at, resolve }))
  }
}

class Writer {
  /** How many messages make a request: small, so that a kill finds many of them under way. */
  static readonly PER_REQUEST = 4

  readonly sent = new Counter()
  readonly closing = new Counter()
  /** Never resolves; rejects when the producer gives a batch up. */
  readonly failed: Promise<never>
  readonly #producer: IdempotentProducer
  #offered = 0
  #closed: Promise<unknown> | undefined

  constructor(handle: DurableStream) {
    let fail: (error: Error) => void
    this.failed = new Promise((_, reject) => (fail = reject))
    this.failed.catch(() => {})
    let answered = -1
    const watched: Fetch = async (input, init) => {
      const headers = new Headers(init?.headers)
      this.sent.add()
      if (headers.has("stream-closed")) this.closing.add()
      const before = answered
      const response = await persistent(input, init)
      if (response.ok) answered = Math.max(answered, Number(headers.get("producer-seq")))
      const expected = response.headers.get("producer-expected-seq")
      if (expected && Number(expected) <= before) {
        // The producer would wait for ever: it will not send again what was answered.
        fail(new Error(`${before} was acknowledged, and then the server expected ${expected}`))
      }
      return response
    }
    this.#producer = new IdempotentProducer(handle, "writer", {
      fetch: watched,
      onError: (error) => fail(error),
      maxBatchBytes: JSON.stringify(this.message(0)).length * Writer.PER_REQUEST,
      maxInFlight: 5,
    })
  }

  message(n: number): Message {
    // The same length for every n, so that requests hold equally many.
    return { n, text: `message ${String(n).padStart(6, "0")}`.padEnd(60, ".") }
  }

  offer(count: number): void {
    for (let i = 0; i < count; i++) {
      this.#producer.append(JSON.stringify(this.message(this.#offered++)))
    }
  }

  close(): Promise<unknown> {
    this.#closed ??= this.#producer.close(JSON.stringify(this.message(this.#offered++)))
    return this.#closed
  }
}

class Reader {
  readonly messages: Array<Message> = []
  readonly read = new Counter()
  /** The latest start of the server in which a live request of ours was answered. */
  readonly liveIn = new Counter()
  readonly liveModes = new Set<string>()
  readonly #url: string
  readonly #mode: "sse" | "long-poll"
  readonly #server: Server
  #session = 0

  constructor(url: string, mode: "sse" | "long-poll", server: Server) {
    this.#url = url
    this.#mode = mode
    this.#server = server
  }

  /** Returns when the stream is closed and read to its end. */
  async run(): Promise<void> {
    let offset = "-1"
    let ended = false
    for (let session = 1; !ended; session++) {
      this.#session = session
      try {
        const response = await stream<Message>({
          url: this.#url,
          offset,
          live: this.#mode,
          fetch: this.#watched,
          backoffOptions: { initialDelay: 10, maxDelay: 100, multiplier: 1.3 },
        })
        const end = new Promise<void>((resolve) => {
          response.subscribeJson((batch) => {
            // A batch handed over after its session broke will be read again by the next one.
            if (session !== this.#session) return
            this.messages.push(...batch.items)
            offset = batch.offset
            this.read.add(batch.items.length)
            if (batch.streamClosed) {
              ended = true
              resolve()
            }
          })
        })
        await response.closed
        // `closed` settles when the last batch has arrived, which is before it is handed over.
        if (response.streamClosed) await end
      } catch (error) {
        if (!isDisconnect(error)) throw error
      }
    }
  }

  readonly #watched: Fetch = async (input, init) => {
    const mode = new URL(String(input)).searchParams.get("live")
    const response = await (mode === "sse" ? fetch : fetchWhole)(input, init)
    if (mode && response.ok) {
      this.liveModes.add(mode)
      this.liveIn.raise(this.#server.starts)
    }
    return response
  }
}

/** A body that was cut off is a failed request, which the client repeats. */
const fetchWhole = createFetchWithConsumedBody(fetch)

/**
 * Repeats a request that got no answer, or a 5xx, until it gets one. The client's own
 * `createFetchWithBackoff` throws on 409, which the producer needs to see to put requests that
 * overtook one another back in order.
 */
const persistent: Fetch = async (input, init) => {
  for (let delay = 5; ; delay = Math.min(delay * 2, 100)) {
    try {
      const response = await fetch(input, init)
      if (response.status < 500) return response
      await response.arrayBuffer()
    } catch (error) {
      if (!isDisconnect(error)) throw error
    }
    await new Promise((resolve) => setTimeout(resolve, delay))
  }
}

/** A connection refused or cut (undici throws a TypeError), or a server that is not ready yet. */
function isDisconnect(error: unknown): boolean {
  return error instanceof TypeError || (error instanceof FetchError && error.status >= 500)
}
