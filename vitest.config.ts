import { defineConfig } from "vitest/config"

export default defineConfig({
  resolve: { conditions: ["@espalier/source"] },
  ssr: { resolve: { conditions: ["@espalier/source"] } },
  test: {
    include: ["test/**/*.test.ts"],
    reporters: ["default", "./test/tally.ts"],
    testTimeout: 30_000
  }
})
