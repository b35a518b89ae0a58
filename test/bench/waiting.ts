/** What it costs to be refused, and to wait: bytes, and CPU to come, to leave and to be served, in short and long lines. */
import { Effect, Fiber, Layer, ManagedRuntime, Schema } from "effect"
import * as Agent from "espalier/Agent"
import * as Dependency from "espalier/Dependency"
import * as Envelope from "espalier/Envelope"
import * as Fleet from "espalier/Fleet"
import * as Limit from "espalier/Limit"
import * as Rate from "espalier/Rate"
import * as Retry from "espalier/Retry"
import { cpuMicros, heapUsed, median } from "./measure.ts"
import { plenty, retries, timeoutMillis } from "./setting.ts"

/** CPU microseconds of one refusal. */
export interface Refusals {
  readonly openBreaker: number
  readonly fullQueue: number
}

/** CPU microseconds of one step, with so many others in line. */
export interface Steps {
  readonly enqueue: number
  readonly cancel: number
  readonly grant: number
}

const rates = [Rate.perSecond(plenty, { burst: plenty }), Rate.perSecond(plenty, { unit: "tokens", burst: plenty })]
const request = { tokens: 20, usage: () => ({ tokens: 12 }) }
const policy = { times: retries }
const deadlineMillis = 3_600_000
const terms = { tokens: plenty, deadline: deadlineMillis, priority: 1 }

class Line extends Dependency.Service<Line>()("line", {
  limit: Limit.fixed(1),
  rates,
  queue: 1_000_000,
  timeout: 2 * deadlineMillis
}) {}
class Full extends Dependency.Service<Full>()("full", { limit: Limit.fixed(1), rates, queue: 0 }) {}
class Down extends Dependency.Service<Down>()("down", { limit: Limit.fixed(64), rates, timeout: timeoutMillis }) {}

const runtime = ManagedRuntime.make(Layer.mergeAll(Fleet.layer(), Line.layer, Full.layer, Down.layer))

/** Lets the one call that holds the slot end; each call that is granted puts itself here. */
const slot = { served: 0, release: (): void => {} }
const work = Effect.callback<void>((resume) => {
  slot.release = () => resume(Effect.void)
  slot.served++
})
/** Made anew for each, as a call with a prompt of its own is. */
const call = () => Retry.owned(Line.call(work, request), policy)

const waiting = Effect.map(Line.snapshot, (snapshot) => snapshot.waiting.reduce((sum, tier) => sum + tier, 0))
const expectWaiting = (size: number) =>
  Effect.flatMap(waiting, (found) =>
    found === size ? Effect.void : Effect.die(new Error(`${found} calls wait, expected ${size}`))
  )

const Sizes = Schema.Struct({ size: Schema.Int, rounds: Schema.Int })

const Bytes = Agent.make("Bytes", {
  input: Sizes,
  output: Schema.Finite,
  run: ({ size }) =>
    Effect.gen(function* () {
      const holder = yield* Effect.forkChild(call(), { startImmediately: true })
      const fibers: Array<Fiber.Fiber<unknown, unknown>> = []
      const before = heapUsed()
      for (let index = 0; index < size; index++)
        fibers.push(yield* Effect.forkChild(call(), { startImmediately: true }))
      yield* Effect.yieldNow
      const bytes = (heapUsed() - before) / size
      yield* expectWaiting(size)
      yield* Fiber.interruptAll(fibers)
      yield* Fiber.interrupt(holder)
      return bytes
    })
})

const batch = 100

/** The same numbers in [0, 1) in every run. */
const randomly = (): (() => number) => {
  let seed = 1
  return () => (seed = (seed * 48_271) % 2_147_483_647) / 2_147_483_647
}

const takeAny = <A>(items: Array<A>, random: () => number): A => {
  const at = Math.floor(random() * items.length)
  const taken = items[at]!
  items[at] = items.at(-1)!
  items.pop()
  return taken
}

const StepCosts = Agent.make("StepCosts", {
  input: Sizes,
  output: Schema.Struct({ enqueue: Schema.Finite, cancel: Schema.Finite, grant: Schema.Finite }),
  run: ({ rounds, size }) =>
    Effect.gen(function* () {
      const random = randomly()
      // Deadlines of their own put the calls in no order, as those of a fleet are.
      const oneMore = Effect.suspend(() => Envelope.within(deadlineMillis * (0.5 + random() / 2))(call()))
      const fibers: Array<Fiber.Fiber<unknown, unknown>> = []
      const enqueue = Effect.gen(function* () {
        for (let index = 0; index < batch; index++) {
          fibers.push(yield* Effect.forkChild(oneMore, { startImmediately: true }))
        }
      })
      const cancel = Effect.gen(function* () {
        for (let index = 0; index < batch; index++) yield* Fiber.interrupt(takeAny(fibers, random))
      })
      const grant = Effect.gen(function* () {
        const until = slot.served + batch
        while (slot.served < until) {
          const before = slot.served
          slot.release()
          if (slot.served === before) yield* Effect.yieldNow
        }
      })
      const timed = (step: Effect.Effect<void, never, Line>, samples: Array<number>) =>
        Effect.gen(function* () {
          const before = cpuMicros()
          yield* step
          samples.push((cpuMicros() - before) / batch)
        })
      // One of them runs at any moment, and the others wait.
      while (fibers.length <= size) yield* enqueue
      const costs = { enqueue: [] as Array<number>, cancel: [] as Array<number>, grant: [] as Array<number> }
      for (let round = 0; round < rounds; round++) {
        yield* timed(enqueue, costs.enqueue)
        yield* timed(cancel, costs.cancel)
        yield* expectWaiting(fibers.length - 1)
        yield* enqueue
        yield* timed(grant, costs.grant)
        // Who was served is not asked for: the ended fibers are thrown out by walking the list.
        for (let index = fibers.length - 1; index >= 0; index--) {
          if (fibers[index]!.pollUnsafe() === undefined) continue
          fibers[index] = fibers.at(-1)!
          fibers.pop()
        }
        yield* expectWaiting(fibers.length - 1)
      }
      yield* Fiber.interruptAll(fibers)
      return { enqueue: median(costs.enqueue), cancel: median(costs.cancel), grant: median(costs.grant) }
    })
})

const refusalsPerSample = 20_000

const RefusalCosts = Agent.make("RefusalCosts", {
  input: Sizes,
  output: Schema.Struct({ openBreaker: Schema.Finite, fullQueue: Schema.Finite }),
  run: ({ rounds }) =>
    Effect.gen(function* () {
      yield* Down.override({ _tag: "ForceOpen", reason: "bench" })
      const holder = yield* Effect.forkChild(Full.call(Effect.never, request), { startImmediately: true })
      const cost = <E extends { readonly _tag: string }, R>(refused: Effect.Effect<void, E, R>, reason: string) =>
        Effect.gen(function* () {
          const message = yield* Effect.match(refused, { onFailure: String, onSuccess: () => "it ran" })
          if (!message.includes(reason)) return yield* Effect.die(new Error(`${message}, expected ${reason}`))
          const samples: Array<number> = []
          const once = Effect.exit(refused)
          for (let round = 0; round <= rounds; round++) {
            const before = cpuMicros()
            for (let index = 0; index < refusalsPerSample; index++) yield* once
            if (round > 0) samples.push((cpuMicros() - before) / refusalsPerSample)
          }
          return median(samples)
        })
      const openBreaker = yield* cost(Down.call(Effect.yieldNow, request), "BreakerOpen")
      const fullQueue = yield* cost(Full.call(Effect.yieldNow, request), "QueueFull")
      yield* Fiber.interrupt(holder)
      return { openBreaker, fullQueue }
    })
})

/**
 * CPU microseconds to cancel a fiber that waits for nothing but that, beside so many others: what a cancelled call
 * cannot cost less than. It grows with their number too, because memory that has not been touched for long is far away.
 */
export const bareCancel = (size: number, rounds: number): Promise<number> =>
  Effect.runPromise(
    Effect.gen(function* () {
      const random = randomly()
      const fibers: Array<Fiber.Fiber<unknown, unknown>> = []
      const samples: Array<number> = []
      const idle = () =>
        Effect.forkChild(
          Effect.callback<void>(() => Effect.void),
          { startImmediately: true }
        )
      while (fibers.length < size) fibers.push(yield* idle())
      for (let round = 0; round < rounds; round++) {
        for (let index = 0; index < batch; index++) fibers.push(yield* idle())
        const before = cpuMicros()
        for (let index = 0; index < batch; index++) yield* Fiber.interrupt(takeAny(fibers, random))
        samples.push((cpuMicros() - before) / batch)
      }
      yield* Fiber.interruptAll(fibers)
      return median(samples)
    })
  )

/** Heap bytes of one caller that waits: its fiber, its retry policy, its call, its hold, its place in the line. */
export const bytes = (size: number): Promise<number> =>
  runtime.runPromise(Effect.map(Fleet.run(Bytes, { size, rounds: 1 }, terms), ({ output }) => output))

/** Costs of a step beside so many who wait, in no order. */
export const steps = (size: number, rounds: number): Promise<Steps> =>
  runtime.runPromise(Effect.map(Fleet.run(StepCosts, { size, rounds }, terms), ({ output }) => output))

/** Costs of being told no. */
export const refusals = (rounds: number): Promise<Refusals> =>
  runtime.runPromise(Effect.map(Fleet.run(RefusalCosts, { size: 0, rounds }, terms), ({ output }) => output))
