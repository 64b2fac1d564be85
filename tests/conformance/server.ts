// A reveille process that can be killed and started again on the same port and data directory.
import { spawn, type ChildProcess } from "node:child_process"
import { once } from "node:events"
import { mkdtemp, rm } from "node:fs/promises"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"

export class Server {
  readonly url: string
  /** How often it was started. */
  starts = 0
  readonly #bin: string
  readonly #port: number
  readonly #dataDir: string
  readonly #settings: readonly string[]
  #child: ChildProcess | undefined

  private constructor(bin: string, port: number, dataDir: string, settings: readonly string[]) {
    this.url = `http://127.0.0.1:${port}`
    this.#bin = bin
    this.#port = port
    this.#dataDir = dataDir
    this.#settings = settings
  }

  /** With more settings than where it listens and keeps its data. */
  static async start(...settings: string[]): Promise<Server> {
    const bin = process.env.REVEILLE_BIN
    if (!bin) throw new Error("REVEILLE_BIN is not set: run `cargo xtask client` or `examples`")
    const dataDir = await mkdtemp(join(tmpdir(), "reveille-client-"))
    const server = new Server(bin, await freePort(), dataDir, settings)
    await server.restart()
    return server
  }

  /** Resolves when the server says that it listens; rejects if it exits instead. */
  async restart(): Promise<void> {
    const child = spawn(
      this.#bin,
      [
        ...["serve", "--listen", `127.0.0.1:${this.#port}`],
        ...["--data-dir", this.#dataDir, "--long-poll-timeout", "500ms"],
        ...this.#settings,
      ],
      { stdio: ["ignore", "pipe", "pipe"] }
    )
    this.#child = child
    let complaints = ""
    child.stderr!.on("data", (chunk) => (complaints += chunk))
    await new Promise<void>((resolve, reject) => {
      child.once("error", reject)
      child.once("exit", (code) =>
        reject(new Error(`the server exited with ${code} before it listened:\n${complaints}`))
      )
      createInterface(child.stdout!).on("line", (line) => {
        if (line.startsWith("listening on ")) resolve()
      })
    })
    this.starts++
  }

  /** kill -9; resolves when the process is gone. Fails if it had gone by itself. */
  async kill(): Promise<void> {
    const child = this.#child!
    if (child.exitCode !== null) throw new Error(`the server exited with ${child.exitCode}`)
    const gone = once(child, "exit")
    child.kill("SIGKILL")
    await gone
  }

  async dispose(): Promise<void> {
    if (this.#child?.exitCode === null && this.#child.signalCode === null) await this.kill()
    await rm(this.#dataDir, { recursive: true, force: true })
  }
}

/**
 * A port below the range the kernel hands to outgoing connections: a client that keeps dialing a
 * dead server could otherwise be given the server's own port and end up connected to itself.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = 20_000 + Math.floor(Math.random() * 10_000)
    const probe = createServer()
    const free = await new Promise<boolean>((resolve) => {
      probe.once("error", () => resolve(false))
      probe.listen(port, "127.0.0.1", () => probe.close(() => resolve(true)))
    })
    if (free) return port
  }
}
