/** Cases F.5: one owner of retries, one budget for them, and waits that are kept; in virtual time. */
import { assert, describe, it } from "@effect/vitest"
import { Cause, Clock, Effect, Exit, Fiber, Schema } from "effect"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import * as Agent from "espalier/Agent"
import * as Dependency from "espalier/Dependency"
import * as Fault from "espalier/Fault"
import * as Fleet from "espalier/Fleet"
import * as Limit from "espalier/Limit"
import * as Outcome from "espalier/Outcome"
import * as Rate from "espalier/Rate"
import * as Retry from "espalier/Retry"
import * as RetryBudget from "espalier/RetryBudget"

class Api extends Dependency.Service<Api>()("api", {
  limit: Limit.fixed(100),
  breaker: false,
  timeout: "5 minutes"
}) {}

const flaky = Fault.disconnected("api")

const times = (count: number): ReadonlyArray<number> => Array.from({ length: count }, (_, index) => index)

const start = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.forkChild(Effect.exit(effect), { startImmediately: true })

/** An answer of 429 with these headers, at this wall-clock instant. */
const throttled = (headers: Readonly<Record<string, string>>, nowWallMillis = 0) =>
  Fault.http({ dependency: "api", status: 429, header: (name) => headers[name], nowWallMillis })

/** Runs work as the root agent of a fleet of its own. */
const inFleet = <A, E>(work: Effect.Effect<A, E, Api>, options: Fleet.Options = {}, submit: Fleet.SubmitOptions = {}) =>
  Fleet.run(
    Agent.make("Root", { input: Schema.Void, output: Schema.Unknown, run: () => work }),
    undefined,
    submit
  ).pipe(
    Effect.map(({ output, report }) => ({ output: output as A, report })),
    Effect.provide([Fleet.layer(options), Api.layer])
  )

/** Runs it while so much virtual time passes. */
const within = <A, E, R>(duration: Parameters<typeof TestClock.adjust>[0], effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const fiber = yield* start(effect)
    yield* TestClock.adjust(duration)
    const exit = fiber.pollUnsafe()
    assert(exit !== undefined && Exit.isSuccess(exit), "still running")
    return exit.value
  })

/** Counts what reaches the wire, with the instants. */
const wire = <A, E>(answer: (attempt: number) => Effect.Effect<A, E>) => {
  const at: Array<number> = []
  const request = Effect.flatMap(Clock.currentTimeMillis, (now) => answer(at.push(now)))
  return { at, request }
}

describe("F.5 retry", () => {
  it.effect("F45: retries of two layers do not multiply: below the owner they are off", () =>
    Effect.gen(function* () {
      const { at, request } = wire(() => Effect.fail(flaky))
      const Inner = Agent.make("Inner", {
        input: Schema.Void,
        output: Schema.Void,
        run: () => Retry.owned(Api.call(request, { retry: { times: 2 } }), { times: 2 })
      })
      const exit = yield* within(
        "10 minutes",
        inFleet(Retry.owned(Agent.run(Inner, undefined), { times: 3 }), { retries: { reserve: 100 } })
      )
      assert(Exit.isFailure(exit))
      assert.strictEqual(at.length, 4)
    })
  )

  it.effect(
    "F45: what always answers 429 is asked four times by a quiet fleet, whatever the layers above would do",
    () =>
      Effect.gen(function* () {
        const { at, request } = wire(() => Effect.fail(throttled({ "retry-after": "1" })))
        const exit = yield* within("10 minutes", inFleet(Retry.owned(Api.call(request), { times: 3 })))
        assert(Exit.isFailure(exit))
        const error = Cause.findErrorOption(exit.cause)
        assert(error._tag === "Some" && error.value instanceof Fault.ModelOverloaded)
        assert.strictEqual(at.length, 4)
      })
  )

  it.effect("F46: the budget is a share of first attempts, not of what is in flight while it fails", () =>
    Effect.gen(function* () {
      const { at, request } = wire((attempt) =>
        attempt <= 100 ? Effect.void : Effect.delay(Effect.fail(flaky), "1 second")
      )
      const work = Effect.gen(function* () {
        yield* Effect.forEach(times(100), () => Api.call(request))
        yield* Effect.sleep("20 seconds")
        const storm = times(40).map(() => Effect.exit(Api.call(request, { retry: { times: 1, base: "1 millis" } })))
        yield* Effect.all(storm, { concurrency: "unbounded" })
      })
      yield* within("2 minutes", inFleet(work, { retryOwner: "call" }))
      // 140 first attempts in the last minute.
      assert.strictEqual(at.length, 140 + 14)
    })
  )

  it.effect("F47: one call a minute that fails once is tried again every time", () =>
    Effect.gen(function* () {
      const { at, request } = wire((attempt) => (attempt % 2 === 1 ? Effect.fail(flaky) : Effect.void))
      const work = Effect.forEach(times(20), () =>
        Effect.andThen(Retry.owned(Api.call(request)), Effect.sleep("1 minute"))
      )
      const exit = yield* within("1 hour", inFleet(work))
      assert(Exit.isSuccess(exit))
      assert.strictEqual(at.length, 40)
      assert.strictEqual(exit.value.report.retries, 20)
    })
  )

  it.effect("F49: a drained budget fills again by successes, and without one nothing is tried again", () =>
    Effect.gen(function* () {
      let fails = true
      const { at, request } = wire(() => (fails ? Effect.fail(flaky) : Effect.void))
      const attempt = Effect.exit(Retry.owned(Api.call(request), { times: 20, base: "1 millis" }))
      const work = Effect.gen(function* () {
        yield* attempt
        const drained = at.length
        yield* attempt
        const refused = at.length - drained
        yield* Effect.sleep("2 minutes")
        fails = false
        yield* Effect.forEach(times(1_000), () => Api.call(request))
        fails = true
        const before = at.length
        yield* attempt
        return { drained, refused, after: at.length - before }
      })
      const exit = yield* within("10 minutes", inFleet(work))
      assert(Exit.isSuccess(exit))
      assert.deepStrictEqual([exit.value.output.drained, exit.value.output.refused], [4, 1])
      assert.isAtLeast(exit.value.output.after, 2)

      const none = wire(() => Effect.fail(flaky))
      yield* within("1 minute", inFleet(Retry.owned(Api.call(none.request)), { retries: { reserve: 0 } }))
      assert.strictEqual(none.at.length, 1)
    })
  )

  it.effect("F50: what Retry-After says is read or ignored, and never turned into at once or into a year", () =>
    Effect.gen(function* () {
      const now = Date.UTC(2026, 9, 21, 7, 27, 0)
      const year = 365 * 86_400
      const read: ReadonlyArray<readonly [string, number | undefined]> = [
        ["120", 120_000],
        ["Wed, 21 Oct 2026 07:28:00 GMT", 60_000],
        ["-3", undefined],
        ["1.5", 1_500],
        ["soon", undefined],
        ["Wed, 21 Oct 2026 07:26:00 GMT", 0],
        ["0", 0],
        [`${10 * year}`, 3_600_000]
      ]
      for (const [text, millis] of read) {
        const fault = throttled({ "retry-after": text }, now)
        assert(fault._tag === "ModelOverloaded")
        assert.strictEqual(fault.retryAfterMillis, millis, text)
        const { at, request } = wire((attempt) => (attempt === 1 ? Effect.fail(fault) : Effect.void))
        const exit = yield* within("2 hours", inFleet(Api.call(request)))
        assert(Exit.isSuccess(exit))
        // What was ignored waits as if nothing had been said, a second at first.
        assert.isAtLeast(at[1]! - at[0]!, millis ?? 1_000, text)
        assert.isAtMost(at[1]! - at[0]!, (millis ?? 1_000) * 1.25 + 1, text)
      }
    })
  )

  it.effect("F50: a wait beyond the deadline fails now", () =>
    Effect.gen(function* () {
      const { at, request } = wire(() => Effect.fail(throttled({ "retry-after": `${10 * 365 * 86_400}` })))
      const exit = yield* within("1 second", inFleet(Api.call(request), {}, { deadline: "10 minutes" }))
      assert(Exit.isFailure(exit))
      assert.strictEqual(at.length, 1)
    })
  )

  it.effect("F50: a wait that an error of one's own states is believed for an hour at most", () =>
    Effect.gen(function* () {
      for (const asked of ["3650 days", "Infinity"] as const) {
        const crm = yield* Dependency.make("crm", { limit: Limit.fixed(1), breaker: false, standalone: true })
        const answered = yield* start(crm.call(Effect.fail({ outcome: Outcome.throttled(asked) })))
        yield* TestClock.adjust("1 second")
        assert.isAtMost((yield* crm.snapshot).pausedMillis, 1.25 * 3_600_000)
        yield* Fiber.interrupt(answered)
      }
    })
  )

  it.effect("F51: a wait of 30 days is waited for, and nothing runs hot meanwhile", () =>
    Effect.gen(function* () {
      const crm = yield* Dependency.make("crm", {
        limit: Limit.fixed(1),
        rates: [Rate.perMinute(1 / (30 * 24 * 60), { headroom: 1 })],
        timeout: "Infinity",
        standalone: true
      })
      const { at, request } = wire(() => Effect.void)
      yield* crm.call(request)
      const second = yield* start(crm.call(request))
      yield* TestClock.adjust("29 days")
      assert.strictEqual(second.pollUnsafe(), undefined)
      yield* TestClock.adjust("1 day")
      // A bucket rounds by a billionth.
      assert.approximately(at[1]!, 30 * 86_400_000, 10)
    })
  )

  it.live("F51: on the real clock too a wait beyond 2^31 ms has not ended after 50 ms", () =>
    Effect.gen(function* () {
      const crm = yield* Dependency.make("crm", {
        limit: Limit.fixed(1),
        rates: [Rate.perMinute(1 / (30 * 24 * 60))],
        timeout: "40 days",
        standalone: true
      })
      let started = 0
      const work = Effect.sync(() => void started++)
      yield* crm.call(work)
      const second = yield* start(crm.call(work))
      yield* Effect.sleep(50)
      assert.deepStrictEqual([started, second.pollUnsafe()], [1, undefined])
      yield* Fiber.interrupt(second)
    }).pipe(Effect.scoped)
  )

  it.effect("F53: who waits to try again holds no slot", () =>
    Effect.gen(function* () {
      class Narrow extends Dependency.Service<Narrow>()("narrow", { limit: Limit.fixed(2), breaker: false }) {}
      const asked = new Fault.ToolFlaky({ dependency: "narrow", status: 500, retryAfterMillis: 60_000 })
      const failing = wire((attempt) => (attempt <= 2 ? Effect.fail(asked) : Effect.void))
      const ready = wire(() => Effect.void)
      const work = Effect.gen(function* () {
        const backingOff = times(2).map(() => Retry.owned(Narrow.call(failing.request)))
        const both = yield* start(Effect.all(backingOff, { concurrency: 2 }))
        yield* Effect.sleep("1 second")
        yield* Narrow.call(ready.request)
        return yield* Fiber.join(both)
      })
      const Root = Agent.make("Root", { input: Schema.Void, output: Schema.Unknown, run: () => work })
      const exit = yield* within(
        "2 minutes",
        Fleet.run(Root, undefined).pipe(Effect.provide([Fleet.layer(), Narrow.layer]))
      )
      assert(Exit.isSuccess(exit))
      assert.deepStrictEqual(ready.at, [1_000])
      assert.deepStrictEqual(failing.at.slice(0, 2), [0, 0])
      for (const instant of failing.at.slice(2)) assert(instant >= 60_000 && instant <= 75_001)
    })
  )

  it.effect("F53: a call that was throttled holds no slot while its gate is paused", () =>
    Effect.gen(function* () {
      const crm = yield* Dependency.make("crm", { limit: Limit.fixed(2), breaker: false, standalone: true })
      const { request } = wire((attempt) =>
        attempt <= 2 ? Effect.fail(throttled({ "retry-after": "60" })) : Effect.void
      )
      yield* Effect.forEach(times(2), () => start(crm.call(request)))
      yield* TestClock.adjust("1 second")
      const { inFlight, waiting } = yield* crm.snapshot
      assert.deepStrictEqual([inFlight, waiting], [0, [0, 0, 0, 2]])
    })
  )

  it.effect("F54: 5 % of failures at random exclude neither of two dependencies", () =>
    Effect.gen(function* () {
      const options = { limit: Limit.fixed(10), standalone: true }
      const both = [yield* Dependency.make("a", options), yield* Dependency.make("b", options)] as const
      // A plain congruential generator, so that the history is the same every time.
      let seed = 7
      const next = () => (seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31) / 2 ** 31
      for (const round of times(4_000)) {
        const work = next() < 0.05 ? Effect.fail(flaky) : Effect.void
        const exit = yield* Effect.exit(both[round % 2]!.call(work))
        if (Exit.isFailure(exit)) assert.strictEqual(Cause.squash(exit.cause), flaky)
      }
      for (const each of both) assert.strictEqual((yield* each.snapshot).breaker?.position, "Closed")
    })
  )

  it("law 7: in the 60 s before any retry there are at most max(3, 10 % of first attempts) of them", () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(fc.record({ gap: fc.nat(9_000), calls: fc.integer({ min: 1, max: 40 }), failing: fc.nat(100) }), {
          minLength: 3,
          maxLength: 25
        }),
        fc.constantFrom("call" as const, "orchestrator" as const),
        (bursts, retryOwner) =>
          Effect.gen(function* () {
            const firsts: Array<number> = []
            const retries: Array<number> = []
            const one = (fails: boolean) =>
              Effect.suspend(() => {
                let failedAt: number | undefined
                const request = Effect.flatMap(Clock.currentTimeMillis, (now) => {
                  // Paid for when it is decided, which is when the attempt before it failed.
                  if (failedAt === undefined) firsts.push(now)
                  else retries.push(failedAt)
                  failedAt = now
                  return fails ? Effect.fail(flaky) : Effect.void
                })
                return Effect.exit(
                  Retry.owned(Api.call(request, { retry: { times: 3, base: "1 second" } }), {
                    times: 3,
                    base: "1 second"
                  })
                )
              })
            const work = Effect.gen(function* () {
              for (const { calls, failing, gap } of bursts) {
                yield* Effect.sleep(gap)
                for (const index of times(calls)) yield* start(one((index * 100) / calls < failing))
              }
              yield* Effect.sleep("1 minute")
            })
            yield* within("1 hour", inFleet(work, { retryOwner }))
            retries.sort((a, b) => a - b)
            for (const at of retries) {
              const spent = retries.filter((each) => each > at - 60_000 && each <= at).length
              const earned = firsts.filter((each) => each > at - 60_000 && each <= at).length
              assert.isAtMost(spent, Math.max(3, Math.floor(earned / 10)))
            }
          }).pipe(Effect.scoped, Effect.provide(TestClock.layer()), Effect.runPromise)
      ),
      { numRuns: 40 }
    ))

  it.effect("law 7: a retry after a time-out costs two", () =>
    Effect.gen(function* () {
      const { at, request } = wire(() => Effect.never)
      const call = Api.call(request, { timeout: "1 second", retry: { times: 10, base: "1 millis" } })
      yield* within("1 minute", inFleet(call, { retryOwner: "call", retries: { reserve: 5 } }))
      assert.strictEqual(at.length, 3)
    })
  )

  it.effect("a budget is shared by the whole fleet, and outside of one by the process", () =>
    Effect.gen(function* () {
      const budget = RetryBudget.make({ reserve: 2, ratio: 0 })
      const { at, request } = wire(() => Effect.fail(flaky))
      const each = Retry.owned(request, { times: 1, base: "1 millis" })
      yield* within(
        "1 minute",
        Effect.all(
          times(5).map(() => Effect.exit(each)),
          { concurrency: 5 }
        ).pipe(Effect.provideService(RetryBudget.CurrentRetryBudget, budget))
      )
      assert.strictEqual(at.length, 5 + 2)
    })
  )
})
