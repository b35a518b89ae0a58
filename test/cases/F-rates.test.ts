/** Cases F.3 and F26: rates and the waiting line before them, in virtual time. */
import { assert, describe, it } from "@effect/vitest"
import { Cause, Clock, Effect, Exit, Fiber, Schema } from "effect"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import * as Agent from "espalier/Agent"
import * as Dependency from "espalier/Dependency"
import * as Fleet from "espalier/Fleet"
import * as Limit from "espalier/Limit"
import * as Outcome from "espalier/Outcome"
import * as Rate from "espalier/Rate"
import { isRejected, type Rejected } from "espalier/Rejected"

const make = (options: Partial<Dependency.Options> = {}) =>
  Dependency.make("crm", { limit: Limit.fixed(1_000), breaker: false, standalone: true, ...options })

const times = (count: number): ReadonlyArray<number> => Array.from({ length: count }, (_, index) => index)

const start = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.forkChild(Effect.exit(effect), { startImmediately: true })

const refusalOf = (exit: Exit.Exit<unknown, unknown>): Rejected | undefined => {
  const error = Exit.isFailure(exit) ? Cause.findErrorOption(exit.cause) : undefined
  return error?._tag === "Some" && isRejected(error.value) ? error.value : undefined
}

const perTen = (name: string, burst: number) => Rate.perSecond(10, { unit: name as "tokens", burst, headroom: 1 })

/** Notes when each call starts. */
const recording = () => {
  const starts: Array<{ readonly name: string; readonly at: number }> = []
  const call = (name: string) => Effect.map(Clock.currentTimeMillis, (at) => void starts.push({ name, at }))
  return { starts, call }
}

describe("F.3 rates", () => {
  it.effect("F26: with a hundred low calls waiting for the rate, a call of tier 0 is the next to start", () =>
    Effect.gen(function* () {
      class Crm extends Dependency.Service<Crm>()("crm", {
        limit: Limit.fixed(10),
        rates: [Rate.perSecond(1, { headroom: 1 })]
      }) {}
      const order: Array<string> = []
      const Caller = Agent.make("Caller", {
        input: Schema.String,
        output: Schema.Void,
        run: (name) => Crm.call(Effect.sync(() => void order.push(name)))
      })
      yield* Effect.gen(function* () {
        for (const index of times(100)) yield* Fleet.submit(Caller, `low ${index}`, { priority: 3 })
        yield* TestClock.adjust("10 seconds")
        assert.strictEqual(order.length, 11)
        yield* Fleet.submit(Caller, "high", { priority: 0 })
        yield* TestClock.adjust("1 second")
        assert.deepStrictEqual(order.slice(11), ["high"])
        yield* TestClock.adjust("3 minutes")
        assert.strictEqual(order.length, 101)
      }).pipe(Effect.provide([Fleet.layer({ tasks: 200, places: 200 }), Crm.layer]))
    })
  )

  it.effect("F28: a large call starts as soon as its tokens are there, and later ones of its tier wait behind it", () =>
    Effect.gen(function* () {
      const crm = yield* make({ rates: [perTen("tokens", 100)] })
      const { call, starts } = recording()
      yield* crm.call(call("first"), { tokens: 100 })
      yield* start(crm.call(call("large"), { tokens: 80 }))
      for (const index of times(40)) {
        yield* TestClock.adjust("200 millis")
        yield* start(crm.call(call(`small ${index}`), { tokens: 1 }))
      }
      yield* TestClock.adjust("1 minute")
      assert.deepStrictEqual(starts[1], { name: "large", at: 8_000 })
      assert.strictEqual(starts.length, 42)
      assert.deepStrictEqual(
        starts.slice(2).map(({ name }) => name),
        times(40).map((index) => `small ${index}`)
      )
    })
  )

  it.effect("F29: what costs more than a full bucket is refused at once, and hangs nobody behind it", () =>
    Effect.gen(function* () {
      const crm = yield* make({ rates: [Rate.perMinute(100_000, { unit: "tokens" })] })
      const exit = yield* Effect.exit(crm.call(Effect.void, { tokens: 150_000 }))
      assert.deepInclude(refusalOf(exit)?.reason, { _tag: "NeverFits", cost: 150_000, capacity: 100_000 })
      assert(Exit.isSuccess(yield* Effect.exit(crm.call(Effect.void, { tokens: 100_000 }))))
    })
  )

  it.effect("F29: a call that waits and no longer fits after the rates were lowered is refused, and hangs nobody", () =>
    Effect.gen(function* () {
      const crm = yield* make({ rates: [perTen("tokens", 100)] })
      yield* crm.call(Effect.void, { tokens: 100 })
      const large = yield* start(crm.call(Effect.void, { tokens: 80 }))
      const small = yield* start(crm.call(Effect.void, { tokens: 10 }))
      yield* TestClock.adjust("1 second")
      yield* crm.reconfigure({ rates: [perTen("tokens", 50)] })
      yield* TestClock.adjust("1 minute")
      const exit = large.pollUnsafe()
      assert(exit !== undefined && Exit.isSuccess(exit))
      assert.deepInclude(refusalOf(exit.value)?.reason, { _tag: "NeverFits", cost: 80, capacity: 50 })
      assert.deepStrictEqual(small.pollUnsafe(), Exit.succeed(Exit.void))
      assert.deepStrictEqual((yield* crm.snapshot).waiting, [0, 0, 0, 0])
    })
  )

  it("F31: no stretch of time holds more starts than its rate and the burst, however calls arrive", () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(fc.record({ gap: fc.nat(400), calls: fc.integer({ min: 1, max: 30 }) }), { maxLength: 12 }),
        fc.integer({ min: 1, max: 20 }),
        fc.integer({ min: 1, max: 12 }),
        (arrivals, perSecond, burst) =>
          Effect.gen(function* () {
            const crm = yield* make({ rates: [Rate.perSecond(perSecond, { burst, headroom: 1 })] })
            const { call, starts } = recording()
            for (const { calls, gap } of arrivals) {
              yield* TestClock.adjust(gap)
              for (const _ of times(calls)) yield* start(crm.call(call("")))
            }
            yield* TestClock.adjust("10 minutes")
            assert.strictEqual(
              starts.length,
              arrivals.reduce((sum, { calls }) => sum + calls, 0)
            )
            for (const [first, { at }] of starts.entries()) {
              for (let last = first; last < starts.length; last++) {
                const allowed = ((starts[last]!.at - at) / 1_000) * perSecond + burst
                assert.isAtMost(last - first + 1, allowed + 1e-6)
              }
            }
          }).pipe(Effect.scoped, Effect.provide(TestClock.layer()), Effect.runPromise)
      ),
      { numRuns: 30 }
    ))

  it.effect("F31: after an idle window the next call waits for nothing", () =>
    Effect.gen(function* () {
      const crm = yield* make({ rates: [perTen("requests", 10)] })
      const { call, starts } = recording()
      for (const _ of times(50)) yield* start(crm.call(call("busy")))
      yield* TestClock.adjust("5 seconds")
      for (const _ of times(10)) yield* start(crm.call(call("after")))
      assert.strictEqual(starts.length, 60)
    })
  )

  for (const step of [-3_600_000, 3_600_000, -10 * 365 * 86_400_000] as const) {
    it.effect(`F32: the wall clock steps by ${step} ms: nobody is locked out and nothing is refilled for free`, () =>
      Effect.gen(function* () {
        const clock = yield* TestClock.testClockWith(Effect.succeed)
        let offset = 0
        const wall = () => clock.currentTimeMillisUnsafe() + offset
        const stepping: TestClock.TestClock = {
          ...clock,
          currentTimeMillisUnsafe: wall,
          currentTimeMillis: Effect.sync(wall),
          currentTimeNanosUnsafe: () => BigInt(wall()) * 1_000_000n,
          currentTimeNanos: Effect.sync(() => BigInt(wall()) * 1_000_000n)
        }
        yield* Effect.gen(function* () {
          const crm = yield* make({
            breaker: { consecutive: 1, openFor: "10 seconds" },
            rates: [perTen("requests", 5)]
          })
          let started = 0
          const work = Effect.sync(() => void started++)
          for (const _ of times(20)) yield* start(crm.call(work))
          assert.strictEqual(started, 5)
          offset = step
          yield* crm.reconfigure({})
          assert.strictEqual(started, 5)
          yield* TestClock.adjust("1 second")
          assert.strictEqual(started, 15)
          yield* TestClock.adjust("10 seconds")
          assert.strictEqual(started, 20)
          yield* Effect.exit(crm.call(Effect.fail("down")))
          offset = 0
          const { breaker } = yield* crm.snapshot
          assert(breaker!.retryAfterMillis > 7_000 && breaker!.retryAfterMillis < 13_000)
          yield* TestClock.adjust("13 seconds")
          assert(Exit.isSuccess(yield* Effect.exit(crm.call(work))))
        }).pipe(Effect.provideService(Clock.Clock, stepping))
      })
    )
  }

  it.effect("F33: what is refused is charged nothing", () =>
    Effect.gen(function* () {
      const crm = yield* make({ rates: [perTen("tokens", 10)], queue: 0 })
      yield* crm.call(Effect.void, { tokens: 8 })
      const exit = yield* Effect.exit(crm.call(Effect.void, { tokens: 5 }))
      assert.strictEqual(refusalOf(exit)?.reason._tag, "QueueFull")
      assert(Exit.isSuccess(yield* Effect.exit(crm.call(Effect.void, { tokens: 2 }))))
      assert.strictEqual((yield* crm.snapshot).rates[0]!.level, 0)
    })
  )

  it.effect("F34: a cost that is no whole number from 0 is an error that changes nothing; 0 is allowed and free", () =>
    Effect.gen(function* () {
      const crm = yield* make({ rates: [perTen("tokens", 10)] })
      for (const tokens of [Number.NaN, -1_000, Infinity, -Infinity, 1e308, 0.5]) {
        const exit = yield* Effect.exit(Effect.suspend(() => crm.call(Effect.void, { tokens })))
        assert(Exit.isFailure(exit))
        const error = Cause.squash(exit.cause)
        assert(error instanceof RangeError)
        assert.strictEqual(error.message, `crm.call: tokens must be an integer >= 0, got ${tokens}`)
      }
      for (const tokens of [0, -0]) assert(Exit.isSuccess(yield* Effect.exit(crm.call(Effect.void, { tokens }))))
      const { inFlight, rates } = yield* crm.snapshot
      assert.deepStrictEqual([inFlight, rates[0]!.level], [0, 10])
    })
  )

  it.effect(
    "F35: those who leave the line hand back what they asked for: the next waits as if they had never come",
    () =>
      Effect.gen(function* () {
        const crm = yield* make({ rates: [perTen("tokens", 10)] })
        const { call, starts } = recording()
        yield* crm.call(call("first"), { tokens: 10 })
        const leaving = yield* Effect.forEach(times(5), () => start(crm.call(call("gone"), { tokens: 10 })))
        const behind = yield* start(crm.call(call("behind"), { tokens: 1 }))
        for (const fiber of leaving) yield* Fiber.interrupt(fiber)
        yield* TestClock.adjust("100 millis")
        assert(behind.pollUnsafe() !== undefined)
        yield* start(crm.call(call("next"), { tokens: 1 }))
        yield* TestClock.adjust("100 millis")
        assert.deepStrictEqual(starts, [
          { name: "first", at: 0 },
          { name: "behind", at: 100 },
          { name: "next", at: 200 }
        ])
      })
  )

  it.effect("F37: concurrent calls are charged before they run, and the difference comes back after", () =>
    Effect.gen(function* () {
      const crm = yield* make({ rates: [Rate.perMinute(1_000, { unit: "tokens", headroom: 1 })] })
      let running = 0
      const work = Effect.andThen(
        Effect.sync(() => running++),
        Effect.sleep("1 second")
      )
      const fibers = yield* Effect.forEach(times(20), () =>
        start(crm.call(work, { tokens: 600, usage: () => ({ tokens: 100 }) }))
      )
      assert.strictEqual(running, 1)
      assert.strictEqual((yield* crm.snapshot).rates[0]!.level, 400)
      yield* TestClock.adjust("1 second")
      // 400 + 500 handed back + what flowed in: one more fits, two do not.
      assert.strictEqual(running, 2)
      yield* TestClock.adjust("20 minutes")
      assert.strictEqual((yield* Effect.forEach(fibers, Fiber.join)).filter(Exit.isSuccess).length, 20)
      assert.strictEqual((yield* crm.snapshot).rates[0]!.level, 1_000)
    })
  )

  it.effect("F37: a throttled answer has cost no tokens, and one that took more leaves a debt that all wait for", () =>
    Effect.gen(function* () {
      const crm = yield* make({ rates: [perTen("tokens", 100)] })
      const throttled = Effect.fail({ outcome: Outcome.throttled("0 millis") })
      const first = yield* start(crm.call(throttled, { tokens: 50 }))
      yield* TestClock.adjust("1 millis")
      assert(first.pollUnsafe() !== undefined)
      assert.strictEqual((yield* crm.snapshot).rates[0]!.level, 100)

      yield* crm.call(Effect.void, { tokens: 50, usage: () => ({ tokens: 150 }) })
      assert.strictEqual((yield* crm.snapshot).rates[0]!.level, -50)
      const waiting = yield* start(crm.call(Effect.void, { tokens: 10 }))
      yield* TestClock.adjust("5999 millis")
      assert.strictEqual(waiting.pollUnsafe(), undefined)
      yield* TestClock.adjust("2 millis")
      assert(waiting.pollUnsafe() !== undefined)
    })
  )
})
