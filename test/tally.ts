import type { Reporter, TestModule } from "vitest/node"

/** Ends the run with one plain line, `N passed, N failed`, that a script can read. */
export default class Tally implements Reporter {
  onTestRunEnd(modules: ReadonlyArray<TestModule>, errors: ReadonlyArray<unknown>): void {
    let passed = 0
    let failed = errors.length
    let skipped = 0
    for (const module of modules) {
      let tests = 0
      for (const test of module.children.allTests()) {
        tests++
        const state = test.result().state
        if (state === "passed") passed++
        else if (state === "failed") failed++
        else skipped++
      }
      if (tests === 0 || (module.state() === "failed" && module.errors().length > 0)) failed++
    }
    process.on("exit", () => {
      process.stdout.write(`${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}\n`)
    })
  }
}
