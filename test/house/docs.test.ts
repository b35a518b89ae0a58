/** What the documentation shows is true: every block type-checks, and prints what its `// =>` lines say. */
import { existsSync, readFileSync, rmSync } from "node:fs"
import { join } from "node:path"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { type Block, collect, write } from "./examples.ts"
import { run, temporary } from "./run.ts"
import type { Run } from "./runExamples.ts"
import { assertNone, root } from "./source.ts"

const blocks = collect()
const folder = temporary("docs")
const fileOf = (index: number) => join(folder, `${index}.ts`)
const report = join(folder, "report.json")

const compare = ({ expected, line, path }: Block, { error, printed }: Run): void => {
  for (const [index, { line, value }] of expected.entries()) {
    if (printed[index] === value) continue
    const none = error === undefined ? "it prints nothing; `// =>` needs a console.log" : error
    assert.fail(`${path}:${line} says ${value}, but ${index < printed.length ? `it prints ${printed[index]}` : none}`)
  }
  if (error !== undefined) assert.fail(`${path}:${line} fails: ${error}`)
  const extra = printed.slice(expected.length)
  if (extra.length > 0) assert.fail(`${path}:${line} prints more than it says: ${extra.join(" | ")}`)
}

describe("documentation", () => {
  const running = [...blocks.entries()].filter(([, { runs }]) => runs)
  let results: Record<string, Run> = {}
  let failure = ""

  beforeAll(async () => {
    write(folder, blocks)
    if (running.length === 0) return
    const script = join(root, "test/house/runExamples.ts")
    const files = running.map(([index]) => fileOf(index))
    failure = (await run("node", ["--conditions=@espalier/source", script, report, ...files])).output
    if (existsSync(report)) results = JSON.parse(readFileSync(report, "utf8"))
  }, 120_000)
  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  it("README.md shows code that runs", ({ skip }) => {
    if (!existsSync(join(root, "README.md"))) skip("there is no README.md yet")
    const shown = blocks.filter(({ path, runs }) => path === "README.md" && runs)
    assert.isAbove(shown.length, 0, "README.md has no ```ts block with a `// => value` line; show one that runs")
  })

  it("every block type-checks", { timeout: 60_000 }, async () => {
    if (blocks.length === 0) return
    const { code, output } = await run("tsc", ["--project", join(folder, "tsconfig.json"), "--pretty", "false"])
    const translated = output.split("\n").map((line) => {
      const [, file, at, rest] = /docs-\d+\/(\d+)\.ts\((\d+),\d+\): (.*)$/.exec(line) ?? []
      const block = blocks[Number(file)]
      return block === undefined ? line : `${block.path}:${block.line + Number(at) - 1} ${rest}`
    })
    assertNone(code === 0 ? [] : translated.filter((line) => line.trim() !== ""))
  })

  for (const [index, block] of running) {
    it(`${block.path}:${block.line} prints what it says`, () =>
      compare(block, results[fileOf(index)] ?? { printed: [], error: `it did not run; the process said: ${failure}` }))
  }
})
