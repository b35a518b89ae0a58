/**
 * What a live agent costs: time to spawn, bytes while it waits, time to cancel all, at 1 000, 10 000 and 100 000 agents,
 * beside a bare `Effect.forkChild` of the same waiting effect in the same run.
 *
 * A tenth of a second of calls in flight is part of the cancelled tree: 100 of the agents hold a slot of a dependency.
 * Medians of five; `--json` ends in one JSON line.
 */
import { Effect, Fiber, Schema } from "effect"
import * as Agent from "espalier/Agent"
import * as Dependency from "espalier/Dependency"
import * as Fleet from "espalier/Fleet"
import * as Limit from "espalier/Limit"

interface Figures {
  readonly spawnPerSecond: number
  readonly bytesPerLiveAgent: number
  readonly cancelMillis: number
}

const sizes = [1_000, 10_000, 100_000] as const
const rounds = 5
const calls = 100

class Slow extends Dependency.Service<Slow>()("slow", { limit: Limit.fixed(calls), timeout: "1 hour" }) {}

const heap = (): number => {
  globalThis.gc?.()
  globalThis.gc?.()
  return process.memoryUsage().heapUsed
}
const median = (values: ReadonlyArray<number>): number => values.toSorted((a, b) => a - b)[values.length >> 1]!
const settled = Effect.andThen(Effect.yieldNow, Effect.sleep("20 millis"))

/** Closed sockets, run finalizers and settled holds, counted: each must be as many as there were calls in flight. */
const finalized = { count: 0 }

const Waiting = Agent.make("Waiting", {
  input: Schema.Int,
  output: Schema.Void,
  run: (index): Effect.Effect<void, never, Slow> =>
    index < calls
      ? Effect.orDie(
          Slow.call(
            Effect.onInterrupt(Effect.never, () => Effect.sync(() => void finalized.count++)),
            { tokens: 10 }
          )
        )
      : Effect.never
})

let sample: { spawnMillis: number; bytes: number } = { spawnMillis: 0, bytes: 0 }

const Root = Agent.make("Root", {
  input: Schema.Int,
  output: Schema.Void,
  run: (size) =>
    Effect.gen(function* () {
      const before = heap()
      const start = performance.now()
      for (let index = 0; index < size; index++) yield* Agent.spawn(Waiting, index)
      const spawnMillis = performance.now() - start
      yield* settled
      sample = { spawnMillis, bytes: (heap() - before) / size }
      return yield* Effect.never
    })
})

const espalier = (size: number): Effect.Effect<Figures> =>
  Effect.gen(function* () {
    const handle = yield* Fleet.submit(Root, size, { tokens: 1_000_000 })
    yield* Effect.sleep("50 millis")
    while (sample.bytes === 0) yield* Effect.sleep("20 millis")
    const { spawnMillis, bytes } = sample
    finalized.count = 0
    const start = performance.now()
    yield* handle.stop
    const cancelMillis = performance.now() - start
    const report = yield* handle.report
    const { live, places } = yield* Fleet.snapshot
    const gate = yield* Slow.snapshot
    if (live !== 0 || places.inFlight !== 0 || gate.inFlight !== 0 || finalized.count !== Math.min(size, calls)) {
      return yield* Effect.die(new Error(`left over: ${live} live, ${places.inFlight} places, ${gate.inFlight} slots`))
    }
    if (report.nodes !== size + 1) return yield* Effect.die(new Error(`${report.nodes} nodes reported`))
    sample = { spawnMillis: 0, bytes: 0 }
    return { spawnPerSecond: (size / spawnMillis) * 1_000, bytesPerLiveAgent: bytes, cancelMillis }
  }).pipe(
    Effect.provide([
      Fleet.layer({
        places: 1_000_000,
        width: Infinity,
        descendants: Infinity,
        spawnsPerSecond: 1e9,
        spawnBurst: 1_000_000_000
      }),
      Slow.layer
    ]),
    Effect.orDie
  )

const fork = (size: number): Effect.Effect<Figures> =>
  Effect.gen(function* () {
    const fibers: Array<Fiber.Fiber<never>> = []
    const before = heap()
    const start = performance.now()
    for (let index = 0; index < size; index++) fibers.push(yield* Effect.forkChild(Effect.never))
    const spawnMillis = performance.now() - start
    yield* settled
    const bytes = (heap() - before) / size
    const cancelStart = performance.now()
    yield* Fiber.interruptAll(fibers)
    return {
      spawnPerSecond: (size / spawnMillis) * 1_000,
      bytesPerLiveAgent: bytes,
      cancelMillis: performance.now() - cancelStart
    }
  })

const measure = async (run: (size: number) => Effect.Effect<Figures>, size: number): Promise<Figures> => {
  const samples: Array<Figures> = []
  await Effect.runPromise(run(size))
  for (let round = 0; round < rounds; round++) {
    // What the round before left must be gone before this one takes its first reading of the heap.
    await Effect.runPromise(settled)
    heap()
    await Effect.runPromise(settled)
    samples.push(await Effect.runPromise(run(size)))
  }
  const of = (key: keyof Figures): number => Number(median(samples.map((figures) => figures[key])).toPrecision(4))
  return {
    spawnPerSecond: of("spawnPerSecond"),
    bytesPerLiveAgent: of("bytesPerLiveAgent"),
    cancelMillis: of("cancelMillis")
  }
}

const result: Record<"espalier" | "fork", Record<string, Figures>> = { espalier: {}, fork: {} }
for (const size of sizes) {
  result.fork[size] = await measure(fork, size)
  result.espalier[size] = await measure(espalier, size)
  if (!process.argv.includes("--json")) console.log(size, { espalier: result.espalier[size], fork: result.fork[size] })
}
if (process.argv.includes("--json")) console.log(JSON.stringify(result))
