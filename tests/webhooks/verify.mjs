// Subscribes a worker with a secret, and verifies its deliveries with the published library.
import assert from "node:assert/strict"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { mkdtemp, rm } from "node:fs/promises"
import { createServer } from "node:http"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { Webhook } from "standardwebhooks"

const bin = process.env.REVEILLE_BIN
if (!bin) throw new Error("REVEILLE_BIN is not set: run `cargo xtask webhooks`")

// A worker that refuses each delivery once, so that attempts are seen to be signed anew.
const calls = []
const worker = createServer(async (request, response) => {
  const chunks = []
  for await (const chunk of request) chunks.push(chunk)
  calls.push({ headers: request.headers, body: Buffer.concat(chunks).toString() })
  response.writeHead(calls.length % 2 === 1 ? 500 : 204).end()
  worker.emit("called")
})
worker.listen(0, "127.0.0.1")
await once(worker, "listening")

const dataDir = await mkdtemp(join(tmpdir(), "reveille-webhooks-"))
const template = `http://127.0.0.1:${worker.address().port}/{workerId}/{rpcMethod}`
const server = spawn(
  bin,
  [
    ...["serve", "--listen", "127.0.0.1:0", "--data-dir", dataDir],
    ...["--worker-url-template", template, "--retry-scale", "0.01"],
  ],
  { stdio: ["ignore", "pipe", "inherit"] }
)

try {
  const [line] = await once(createInterface(server.stdout), "line")
  const url = line.replace("listening on ", "")
  const post = async (path, body) => {
    const answer = await fetch(url + path, { method: "POST", body: JSON.stringify(body) })
    assert.equal(answer.status, 200, await answer.clone().text())
    return answer.json()
  }
  const own = `whsec_${Buffer.alloc(24, 7).toString("base64")}`
  for (const [type, given] of [["made.by.the.server", true], ["given", own]]) {
    const worker = { workerId: "w", rpcMethod: "m", pattern: type, secret: given }
    const made = await post("/subscriptions/subscribe", worker)
    await verify(made.secret ?? own, type, post)
  }
  console.log("4 deliveries verified")
} finally {
  server.kill("SIGKILL")
  await once(server, "exit")
  worker.close()
  await rm(dataDir, { recursive: true, force: true })
}

/** Two attempts of one event, both good, and neither after a change. */
async function verify(secret, type, post) {
  const first = calls.length
  const { eventIds } = await post("/ingest", { type, text: "grüße" })
  while (calls.length < first + 2) await once(worker, "called")
  const webhook = new Webhook(secret)
  for (const { headers, body } of calls.slice(first)) {
    assert.equal(headers["webhook-id"], eventIds[0])
    assert.deepEqual(webhook.verify(body, headers), JSON.parse(body))
    assert.throws(() => webhook.verify(body + " ", headers))
    assert.throws(() => webhook.verify(body, { ...headers, "webhook-id": "another" }))
    const other = new Webhook(`whsec_${Buffer.alloc(24, 8).toString("base64")}`)
    assert.throws(() => other.verify(body, headers))
  }
}
