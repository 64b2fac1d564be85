// The published Durable Streams suite against the server at REVEILLE_TEST_URL.
// `cargo xtask conformance` starts the server, sets the variable and counts the results.
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

const baseUrl = process.env.REVEILLE_TEST_URL
if (!baseUrl) {
  throw new Error("REVEILLE_TEST_URL is not set: run `cargo xtask conformance`")
}

runConformanceTests({ baseUrl, subscriptions: true })
