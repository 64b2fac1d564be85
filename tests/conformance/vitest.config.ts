// Both files talk to one real server each, so nothing is gained by isolating or retrying them.
import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    include: ["*.test.ts"],
    retry: 0,
    fileParallelism: false,
  },
})
