import { defineConfig } from "vitest/config"

if (Number.parseInt(process.versions.node) < 22) {
  throw new Error(`This is Node ${process.versions.node}. "npm ci" brings Node 24, unless it runs with --ignore-scripts`)
}

export default defineConfig({
  resolve: { conditions: ["@espalier/source"] },
  ssr: { resolve: { conditions: ["@espalier/source"] } },
  test: {
    include: ["test/**/*.test.ts"],
    reporters: ["default", "./test/tally.ts"],
    testTimeout: 30_000
  }
})
