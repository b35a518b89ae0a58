/**
 * What a governed call costs: CPU microseconds per call in bursts of 1 000, 10 000 and 100 000 that all start at once,
 * beside the pipelines that people build from parts and beside no governance at all; the cost of a refusal; the bytes of
 * a waiting call; and what coming, leaving and being served costs in a short and in a long line.
 *
 * Each pipeline runs in a process of its own, so that none inherits the heap or the compiled code of another. The work is
 * one turn of the event loop (`setImmediate` for promises, `Effect.yieldNow` for effects). CPU is that of all threads,
 * the collector's too. Medians of five after a warm-up, `--quick` of three; a pipeline too slow for that has fewer, and
 * its line says so. Ends in a table, with `--json` in one JSON line. `--part NAME --size N` runs one burst in this process,
 * for a profiler.
 */
import { spawnSync } from "node:child_process"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { espalier } from "./governed.ts"
import { cpuMicros, heapUsed, median } from "./measure.ts"
import { bare, type Burst, peers } from "./peers.ts"
import * as Waiting from "./waiting.ts"

interface Sample {
  readonly micros: number
  readonly rounds: number
}
type BySize = Record<string, number>
interface WaitingCosts {
  readonly refusals: Waiting.Refusals
  readonly bytes: number
  readonly short: Waiting.Steps
  readonly long: Waiting.Steps
  readonly bareCancel: readonly [short: number, long: number]
}

const { values: given } = parseArgs({
  options: {
    json: { type: "boolean", default: false },
    quick: { type: "boolean", default: false },
    part: { type: "string" },
    size: { type: "string" }
  }
})

const sizes = [1_000, 10_000, 100_000] as const
const shortLine = 1_000
const longLine = 100_000
const rounds = given.quick ? 3 : 5
/** After so many seconds of one pipeline at one size no further round begins. */
const patienceSeconds = given.quick ? 2.5 : 30

const warmUpMillis = 1_500
const warmUpBatches = 400

/** Bursts that are not run, because one of them alone would take minutes. */
const tooSlow: Readonly<Record<string, { readonly above: number; readonly why: string }>> = {
  bottleneck: { above: 1_000, why: "a call takes 2 ms by the wall clock" },
  "effect parts": { above: 10_000, why: "each step of the semaphore walks all that wait" }
}

const pipelines: Readonly<Record<string, () => Burst>> = { espalier, ...peers, ...bare }

const runBurst = async (burst: Burst, size: number): Promise<void> => {
  const done = await burst(size)
  if (done !== size) throw new Error(`${done} of ${size} calls came through`)
}

const measure = async (burst: Burst, size: number): Promise<Sample> => {
  const began = performance.now()
  const seconds = (): number => (performance.now() - began) / 1_000
  await runBurst(burst, size)
  // Short bursts are measured in tens, so that a sample is longer than the noise.
  const bursts = Math.max(1, Math.min(10_000 / size, Math.floor(0.3 / seconds())))
  for (let warm = 1; warm < bursts; warm++) await runBurst(burst, size)
  const samples: Array<number> = []
  while (samples.length < rounds && (samples.length === 0 || seconds() < patienceSeconds)) {
    heapUsed()
    const before = cpuMicros()
    for (let index = 0; index < bursts; index++) await runBurst(burst, size)
    samples.push((cpuMicros() - before) / (bursts * size))
  }
  return { micros: rounded(median(samples)), rounds: samples.length }
}

const rounded = (value: number): number => Number(value.toPrecision(3))

const measureAll = async (name: string): Promise<Record<string, Sample>> => {
  const burst = pipelines[name]!()
  // Long enough for the compiler to be done with it, or once where a burst takes longer than that.
  const began = performance.now()
  do await runBurst(burst, sizes[0])
  while (performance.now() - began < warmUpMillis)
  const bySize: Record<string, Sample> = {}
  for (const size of sizes) {
    if (size <= (tooSlow[name]?.above ?? Infinity)) bySize[size] = await measure(burst, size)
  }
  return bySize
}

const measureWaiting = async (): Promise<WaitingCosts> => {
  const batches = given.quick ? 30 : 100
  await Waiting.steps(shortLine, warmUpBatches)
  const short = await Waiting.steps(shortLine, batches)
  const long = await Waiting.steps(longLine, batches)
  const bareCancel = [
    await Waiting.bareCancel(shortLine, 2 * batches),
    await Waiting.bareCancel(longLine, batches)
  ] as const
  return { refusals: await Waiting.refusals(rounds), bytes: await Waiting.bytes(longLine), short, long, bareCancel }
}

/** Runs one part of the bench in a process of its own and reads its answer. */
const apart = (part: string): string => {
  const flags = given.quick ? ["--quick"] : []
  const file = fileURLToPath(import.meta.url)
  const child = spawnSync(process.execPath, [...process.execArgv, file, "--part", part, ...flags], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"]
  })
  if (child.status !== 0) throw new Error(`the part ${part} ended with ${child.status ?? child.signal}`)
  return child.stdout
}

const column = (value: number | string | undefined): string => String(value ?? "-").padStart(9)

const main = (): void => {
  const notes: Array<string> = []
  const microsPerCall: Record<string, BySize> = {}
  console.log(`${"CPU µs per call, burst of".padEnd(54)}${sizes.map(column).join("")}`)
  for (const name of Object.keys(pipelines)) {
    const samples = JSON.parse(apart(name)) as Record<string, Sample>
    microsPerCall[name] = Object.fromEntries(Object.entries(samples).map(([size, { micros }]) => [size, micros]))
    console.log(`${name.padEnd(54)}${sizes.map((size) => column(samples[size]?.micros)).join("")}`)
    for (const [size, sample] of Object.entries(samples)) {
      if (sample.rounds < rounds) notes.push(`${name} at ${size}: median of ${sample.rounds}`)
    }
    const slow = tooSlow[name]
    if (slow !== undefined) notes.push(`${name}: at most ${slow.above} calls, because ${slow.why}`)
  }
  const { bareCancel, bytes, long, refusals, short } = JSON.parse(apart("waiting")) as WaitingCosts
  const bySize = (step: keyof Waiting.Steps): BySize => ({
    [shortLine]: rounded(short[step]),
    [longLine]: rounded(long[step])
  })
  const waiter = {
    bytes: Math.round(bytes),
    enqueueMicros: bySize("enqueue"),
    cancelMicros: bySize("cancel"),
    grantMicros: bySize("grant")
  }
  const refusalMicros = { openBreaker: rounded(refusals.openBreaker), fullQueue: rounded(refusals.fullQueue) }
  console.log(`\nrefusal, µs: open breaker ${refusalMicros.openBreaker}, full queue ${refusalMicros.fullQueue}`)
  console.log(`a waiting call: ${waiter.bytes} bytes of heap, at ${longLine}`)
  console.log(`\n${"CPU µs per step, others in line".padEnd(54)}${[shortLine, longLine].map(column).join("")}`)
  for (const step of ["enqueue", "cancel", "grant"] as const) {
    console.log(`${step.padEnd(54)}${column(rounded(short[step]))}${column(rounded(long[step]))}`)
  }
  console.log(`${"cancel of a fiber that only waits".padEnd(54)}${bareCancel.map(rounded).map(column).join("")}`)
  if (notes.length > 0) console.log(`\n${notes.join("\n")}`)
  if (given.json) console.log(JSON.stringify({ microsPerCall, refusalMicros, waiter }))
}

if (given.part === undefined) main()
else if (given.size !== undefined) {
  const burst = pipelines[given.part]!()
  for (let round = 0; round < rounds; round++) await runBurst(burst, Number(given.size))
  process.exit(0)
} else {
  console.log(JSON.stringify(given.part === "waiting" ? await measureWaiting() : await measureAll(given.part)))
  process.exit(0)
}
