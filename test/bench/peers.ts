/**
 * The same burst through the pipelines that people build from parts: so many calls at once, a rate that never makes
 * anybody wait but is counted, retries, a breaker, a time-out. None of them has a budget, priorities or a deadline.
 */
import Bottleneck from "bottleneck"
import * as Cockatiel from "cockatiel"
import { Duration, Effect, Layer, ManagedRuntime, Schedule, Semaphore } from "effect"
import { CircuitBreaker as EffectBreaker, RateLimiter } from "effect/persistence"
import CircuitBreaker from "opossum"
import pLimit from "p-limit"
import PQueue from "p-queue"
import pRetry from "p-retry"
import { RateLimiterMemory } from "rate-limiter-flexible"
import { concurrency, plenty, retries, timeoutMillis } from "./setting.ts"

/** Runs a burst of so many calls, all started at once, and says how many came through. */
export type Burst = (size: number) => Promise<number>

/** A promise's no-op: one turn of the event loop. */
const noop = (): Promise<number> => new Promise((resolve) => setImmediate(resolve, 1))

const all = async (size: number, call: () => Promise<number>): Promise<number> => {
  const calls: Array<Promise<number>> = []
  for (let index = 0; index < size; index++) calls.push(call())
  let done = 0
  for (const one of await Promise.all(calls)) done += one
  return done
}

const opossum = (action: () => Promise<number>): CircuitBreaker<[], number> =>
  new CircuitBreaker(action, { timeout: timeoutMillis, volumeThreshold: 10, resetTimeout: 30_000 })

/** Consumes of a rate in memory, then does the work. */
const rated = (): (() => Promise<number>) => {
  const limiter = new RateLimiterMemory({ points: plenty, duration: 1 })
  return async () => {
    await limiter.consume("crm", 1)
    return noop()
  }
}

const withPLimit = (): Burst => {
  const limit = pLimit(concurrency)
  const breaker = opossum(rated())
  return (size) => all(size, () => limit(() => pRetry(() => breaker.fire(), { retries })))
}

const withPQueue = (): Burst => {
  const queue = new PQueue({ concurrency, intervalCap: plenty, interval: 1_000 })
  const breaker = opossum(noop)
  return (size) => all(size, () => queue.add(() => pRetry(() => breaker.fire(), { retries })))
}

const withCockatiel = (): Burst => {
  const policy = Cockatiel.wrap(
    Cockatiel.retry(Cockatiel.handleAll, { maxAttempts: retries, backoff: new Cockatiel.ExponentialBackoff() }),
    Cockatiel.circuitBreaker(Cockatiel.handleAll, {
      halfOpenAfter: 30_000,
      breaker: new Cockatiel.ConsecutiveBreaker(5)
    }),
    Cockatiel.bulkhead(concurrency, plenty),
    Cockatiel.timeout(timeoutMillis, Cockatiel.TimeoutStrategy.Aggressive)
  )
  const work = rated()
  return (size) => all(size, () => policy.execute(work))
}

const withBottleneck = (): Burst => {
  const limiter = new Bottleneck({
    maxConcurrent: concurrency,
    reservoir: plenty,
    reservoirRefreshAmount: plenty,
    reservoirRefreshInterval: 10_000
  })
  limiter.on("failed", (_error, { retryCount }) => (retryCount < retries ? 200 : null))
  return (size) => all(size, () => limiter.schedule({ expiration: timeoutMillis }, noop))
}

const withEffectParts = (): Burst => {
  const layer = Layer.mergeAll(
    RateLimiter.layer.pipe(Layer.provide(RateLimiter.layerStoreMemory)),
    EffectBreaker.layer({ tripPolicy: EffectBreaker.consecutive(5), openDuration: "30 seconds" }).pipe(
      Layer.provide(EffectBreaker.layerStoreMemory())
    )
  )
  const runtime = ManagedRuntime.make(layer)
  const slots = Semaphore.makeUnsafe(concurrency)
  const schedule = Schedule.exponential("200 millis").pipe(Schedule.jittered, Schedule.upTo({ times: retries }))
  const burst = (size: number) =>
    Effect.gen(function* () {
      const breaker = yield* EffectBreaker.CircuitBreaker
      const limited = (yield* RateLimiter.makeWithRateLimiter)({
        key: "crm",
        algorithm: "token-bucket",
        onExceeded: "delay",
        window: "1 second",
        limit: plenty
      })
      let done = 0
      const work = Effect.as(Effect.yieldNow, 1)
      const call = () =>
        work.pipe(
          Effect.timeout(Duration.millis(timeoutMillis)),
          limited,
          slots.withPermits(1),
          breaker.execute({ key: "crm" }),
          Effect.retry(schedule),
          Effect.map((one) => {
            done += one
          })
        )
      yield* Effect.forEach(Array.from({ length: size }), call, { concurrency: "unbounded", discard: true })
      return done
    })
  return (size) => runtime.runPromise(burst(size))
}

const barePromise = (): Burst => (size) => all(size, noop)

const bareFiber = (): Burst => (size) =>
  Effect.runPromise(
    Effect.suspend(() => {
      let done = 0
      const call = () => Effect.map(Effect.yieldNow, () => void done++)
      return Effect.map(
        Effect.forEach(Array.from({ length: size }), call, { concurrency: "unbounded", discard: true }),
        () => done
      )
    })
  )

/** What one call costs without any of it, to be subtracted in thought. */
export const bare: Readonly<Record<string, () => Burst>> = { "bare promise": barePromise, "bare fiber": bareFiber }

/** The peers by name. */
export const peers: Readonly<Record<string, () => Burst>> = {
  "p-limit + rate-limiter-flexible + p-retry + opossum": withPLimit,
  "p-queue + p-retry + opossum": withPQueue,
  "cockatiel + limiter": withCockatiel,
  bottleneck: withBottleneck,
  "effect parts": withEffectParts
}
