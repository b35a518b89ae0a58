/** The main job as a person starts it, in a process of its own, over real HTTP. */
import { assert, describe, it } from "vitest"
import { spawn } from "node:child_process"
import { createServer } from "node:net"
import { mkdtempSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const main = new URL("../../examples/enrich-accounts/main.ts", import.meta.url).pathname

interface Ended {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

const run = (args: ReadonlyArray<string>, onStart?: (kill: (signal: NodeJS.Signals) => void) => void): Promise<Ended> =>
  new Promise((resolve) => {
    const env = { ...process.env, OPENAI_API_KEY: "", ANTHROPIC_API_KEY: "" }
    delete (env as Record<string, string | undefined>)["OPENAI_API_KEY"]
    delete (env as Record<string, string | undefined>)["ANTHROPIC_API_KEY"]
    const child = spawn(process.execPath, ["--conditions=@espalier/source", main, ...args], { env })
    let stdout = ""
    let stderr = ""
    child.stdout.on("data", (data) => (stdout += data))
    child.stderr.on("data", (data) => (stderr += data))
    child.on("close", (code) => resolve({ code, stdout, stderr }))
    onStart?.((signal) => child.kill(signal))
  })

const states = [
  "completed",
  "partial",
  "failed",
  "rejected",
  "interrupted",
  "deferred",
  "deadLettered",
  "expired"
] as const
const lastLine = (text: string): any => JSON.parse(text.trim().split("\n").at(-1)!)

const balanced = (outcome: any): void => {
  assert.strictEqual(
    states.reduce((sum, state) => sum + outcome[state], 0),
    outcome.accounts
  )
  assert.strictEqual(outcome.unfinished.length, outcome.accounts - outcome.completed)
  for (const { input, reason } of outcome.unfinished) {
    assert.isString(input)
    assert.match(reason, /^[A-Z]\w+: ./)
  }
}

describe("enrich-accounts", () => {
  it("enriches what the budget reaches for, says why not for the rest, and its books are the server's", async () => {
    const { code, stdout } = await run(["--accounts", "24", "--tokens", "4000", "--json"])
    assert.strictEqual(code, 0)
    const outcome = lastLine(stdout)
    balanced(outcome)
    assert.isAbove(outcome.completed, 5)
    assert.isAbove(outcome.rejected, 0)
    assert.isTrue(outcome.unfinished.every(({ reason }: { reason: string }) => reason.includes("BudgetExceeded")))
    assert.isAtMost(outcome.tokensSpent, outcome.tokensGranted)
    if (outcome.estimated === 0) assert.strictEqual(outcome.tokensSpent, outcome.tokensServed)
    else assert.isAtLeast(outcome.tokensSpent, outcome.tokensServed)
    assert.isAbove(outcome.usdSpent, 0)
    assert.strictEqual(outcome.maxDepth, 1)
  })

  it("stops in order on SIGTERM: nothing new starts, what runs may end, and the report is printed", async () => {
    const { code, stdout } = await run(["--accounts", "200", "--json"], (kill) =>
      setTimeout(() => kill("SIGTERM"), 4_000)
    )
    assert.strictEqual(code, 0)
    const outcome = lastLine(stdout)
    balanced(outcome)
    assert.isAbove(outcome.completed, 0)
    assert.isTrue(outcome.unfinished.some(({ reason }: { reason: string }) => reason.includes("Draining")))
    assert.isBelow(outcome.wallSeconds, 12)
  })

  it("prints the same fields for the naive run", async () => {
    const [naive, governed] = await Promise.all([
      run(["--accounts", "6", "--naive", "--json"]),
      run(["--accounts", "6", "--json"])
    ])
    const fields = (ended: Ended) => Object.keys(lastLine(ended.stdout)).sort()
    assert.deepStrictEqual(fields(naive), fields(governed))
    balanced(lastLine(naive.stdout))
  })

  it("a budget of nothing starts nothing", async () => {
    const { stdout } = await run(["--accounts", "3", "--tokens", "0", "--json"])
    const outcome = lastLine(stdout)
    balanced(outcome)
    assert.deepStrictEqual([outcome.rejected, outcome.calls, outcome.tokensSpent], [3, 0, 0])
  })

  it("one failed answer to the plan does not cost the campaign", async () => {
    // At this seed the model server answers the first attempt at the plan for one account with a 500.
    const { code, stdout } = await run(["--accounts", "1", "--seed", "21", "--json"])
    assert.strictEqual(code, 0)
    const outcome = lastLine(stdout)
    balanced(outcome)
    assert.deepStrictEqual([outcome.completed, outcome.retries], [1, 1])
  })

  it("a short deadline leaves what was done, and says of the rest that time ran out", async () => {
    const { code, stdout } = await run(["--accounts", "100", "--deadline", "5 seconds", "--json"])
    assert.strictEqual(code, 0)
    const outcome = lastLine(stdout)
    balanced(outcome)
    assert.isAbove(outcome.completed, 0)
    assert.isAbove(outcome.rejected, 0)
    assert.isBelow(outcome.wallSeconds, 6)
  })

  const folder = mkdtempSync(join(tmpdir(), "espalier-"))
  const csv = (name: string, text: string): string => {
    const path = join(folder, name)
    writeFileSync(path, text)
    return path
  }
  const header = "Symbol,Security,GICS Sector,GICS Sub-Industry,Headquarters Location"
  const wrong: ReadonlyArray<readonly [string, ReadonlyArray<string>, RegExp]> = [
    ["negative tokens", ["--tokens=-5"], /--tokens.*-5/],
    ["fractional tokens", ["--tokens=1.5"], /--tokens.*1\.5.*integer/],
    ["tokens that are no number", ["--tokens=NaN"], /--tokens.*NaN/],
    ["infinite tokens", ["--tokens=Infinity"], /--tokens.*Infinity/],
    ["huge tokens", ["--tokens=1e99"], /--tokens.*1e99/],
    ["a deadline in the past", ["--deadline=-1 seconds"], /--deadline.*above zero/],
    ["a deadline in the past, in two words", ["--deadline", "-1 seconds"], /--deadline.*-1 seconds.*above zero/],
    ["a deadline that is none", ["--deadline=soon"], /--deadline.*duration/],
    ["an unknown priority", ["--priority=9"], /--priority.*9.*0 and 3/],
    ["a negative depth", ["--depth", "-1"], /--depth.*-1.*0 and 64/],
    ["a fractional depth", ["--depth=1.5"], /--depth.*1\.5.*integer/],
    ["negative dollars", ["--usd", "-1"], /--usd.*-1/],
    ["dollars that are no number", ["--usd=NaN"], /--usd.*NaN/],
    ["a price without its other half", ["--provider=openai", "--model=m", "--price-in=1"], /--price-out/],
    ["no accounts", ["--accounts=0"], /--accounts.*1 and 503/],
    ["a seed that is no number", ["--seed=x"], /--seed.*x/],
    ["an unknown flag", ["--bogus"], /--bogus/],
    ["a provider without a model", ["--provider=openai"], /--model/],
    ["a provider without a key", ["--provider=anthropic", "--model=m"], /ANTHROPIC_API_KEY/],
    ["negative money", ["--provider=openai", "--model=m", "--price-in=-1", "--price-out=1"], /OPENAI_API_KEY|price-in/],
    ["a file that is not there", ["--file=/nowhere.csv"], /nowhere\.csv: cannot be read/],
    ["a CSV without a column", ["--accounts=1", `--file=${csv("a.csv", "Symbol\nMMM\n")}`], /line 1.*Security/],
    [
      "a CSV with a short line",
      ["--accounts=2", `--file=${csv("b.csv", `${header}\nA,B,C,D,E\nA,B\n`)}`],
      /b\.csv: line 3/
    ],
    [
      "a CSV with an empty name",
      ["--accounts=1", `--file=${csv("c.csv", `${header}\nA,,C,D,E\n`)}`],
      /line 2.*Security.*empty/
    ],
    [
      "a CSV with an account twice",
      ["--accounts=2", `--file=${csv("e.csv", `${header}\nA,B,C,D,E\nA,B,C,D,E\n`)}`],
      /line 3.*A a second/
    ],
    ["a CSV with an open quote", ["--accounts=1", `--file=${csv("d.csv", `${header}\nA,"B,C,D,E\n`)}`], /d\.csv: line/]
  ]
  it("bad input is one clear error that names what and how, and nothing is started", async () => {
    for (let index = 0; index < wrong.length; index += 4) {
      await Promise.all(
        wrong.slice(index, index + 4).map(async ([name, args, message]) => {
          const { code, stdout, stderr } = await run([...args, "--json"])
          assert.notStrictEqual(code, 0, name)
          assert.match(stdout + stderr, message, name)
          assert.strictEqual(stdout, "", name)
          assert.strictEqual(stderr.trim().split("\n").length, 1, `${name}: ${stderr}`)
        })
      )
    }
  })

  it("a port in use is named, with what to do", async () => {
    const taken = createServer()
    await new Promise<void>((resolve) => taken.listen(0, "127.0.0.1", resolve))
    const port = (taken.address() as { port: number }).port
    const { code, stderr } = await run(["--accounts", "3", "--port", String(port)])
    taken.close()
    assert.strictEqual(code, 1)
    assert.include(stderr, `port ${port} on 127.0.0.1 is in use; choose another port`)
  })
})
