/** Cases F.1: a breaker around real calls, in virtual time. */
import { assert, describe, it } from "@effect/vitest"
import { Cause, Effect, Exit, Fiber, Schema, Stream } from "effect"
import { TestClock } from "effect/testing"
import * as Agent from "espalier/Agent"
import * as Dependency from "espalier/Dependency"
import type { Event } from "espalier/Event"
import * as Fault from "espalier/Fault"
import * as Fleet from "espalier/Fleet"
import * as Limit from "espalier/Limit"
import * as Outcome from "espalier/Outcome"
import { isRejected, type Rejected } from "espalier/Rejected"

const down = Fault.disconnected("crm")
const fail = Effect.fail(down)
const badRequest = Effect.fail(
  Fault.http({ dependency: "crm", status: 400, header: () => undefined, nowWallMillis: 0 })
)

const make = (options: Partial<Dependency.Options> = {}) =>
  Dependency.make("crm", { limit: Limit.fixed(200), standalone: true, ...options })

const times = (count: number): ReadonlyArray<number> => Array.from({ length: count }, (_, index) => index)

const start = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.forkChild(Effect.exit(effect), { startImmediately: true })

/** Lets everything run that needs no time. */
const settle = TestClock.adjust(0)

const positionOf = (crm: Dependency.Dependency) => Effect.map(crm.snapshot, ({ breaker }) => breaker!.position)

/** Fails calls until the breaker opens, then waits until its open time is over. */
const openAndCool = Effect.fnUntraced(function* (crm: Dependency.Dependency) {
  while ((yield* positionOf(crm)) === "Closed") yield* Effect.exit(crm.call(fail))
  const { breaker } = yield* crm.snapshot
  yield* TestClock.adjust(Math.ceil(breaker!.retryAfterMillis))
})

const refusalOf = (exit: Exit.Exit<unknown, unknown>): Rejected | undefined => {
  const error = Exit.isFailure(exit) ? Cause.findErrorOption(exit.cause) : undefined
  return error?._tag === "Some" && isRejected(error.value) ? error.value : undefined
}

/** Runs work as the root agent of a fleet and hears its events. */
const inFleet = <A, E, R>(work: Effect.Effect<A, E, R>, options: Fleet.Options = {}) =>
  Effect.gen(function* () {
    const events: Array<Event> = []
    yield* Effect.forkChild(
      Stream.runForEach(Fleet.events, (event) => Effect.sync(() => events.push(event))),
      { startImmediately: true }
    )
    const Root = Agent.make("Root", { input: Schema.Void, output: Schema.Unknown, run: () => work })
    const { output, report } = yield* Fleet.run(Root, undefined)
    yield* settle
    return { output: output as A, report, events }
  }).pipe(Effect.provide(Fleet.layer(options)))

describe("F.1 breaker", () => {
  it.effect("F1: exactly one call goes through when the open time ends, the others are refused with a wait", () =>
    Effect.gen(function* () {
      const crm = yield* make({ breaker: { consecutive: 5, openFor: "30 seconds" } })
      yield* openAndCool(crm)
      let upstream = 0
      const hang = Effect.andThen(
        Effect.sync(() => upstream++),
        Effect.sleep("30 seconds")
      )
      const fibers = yield* Effect.forEach(times(100), () => start(crm.call(hang)))
      yield* settle
      assert.strictEqual(upstream, 1)
      const exits = yield* Effect.forEach(fibers.slice(1), Fiber.join)
      for (const exit of exits) {
        const reason = refusalOf(exit)?.reason
        assert(reason?._tag === "BreakerOpen")
        assert(reason.retryAfterMillis > 0 && reason.retryAfterMillis <= 60_000)
      }
      yield* TestClock.adjust("30 seconds")
      assert(Exit.isSuccess(yield* Fiber.join(fibers[0]!)))
      assert.strictEqual(upstream, 1)
      assert.strictEqual(yield* positionOf(crm), "Closed")
    })
  )

  it.effect(
    "F2: a probe that is interrupted or says nothing of health leaves its place at once, and the next is it",
    () =>
      Effect.gen(function* () {
        const crm = yield* make({ breaker: { consecutive: 1 } })
        yield* openAndCool(crm)
        const probe = yield* Effect.forkChild(crm.call(Effect.never), { startImmediately: true })
        assert.isDefined(refusalOf(yield* Effect.exit(crm.call(Effect.void))))
        yield* Fiber.interrupt(probe)
        assert.strictEqual(yield* positionOf(crm), "HalfOpen")

        assert.isUndefined(refusalOf(yield* Effect.exit(crm.call(badRequest))))
        assert.strictEqual(yield* positionOf(crm), "HalfOpen")
        assert.strictEqual((yield* crm.snapshot).breaker?.retryAfterMillis, 0)

        assert(Exit.isSuccess(yield* Effect.exit(crm.call(Effect.void))))
        assert.strictEqual(yield* positionOf(crm), "Closed")
      })
  )

  it.effect(
    "F2: a probe whose work throws leaves its slot, and after the wait that it caused the next is the probe",
    () =>
      Effect.gen(function* () {
        const crm = yield* make({ breaker: { consecutive: 1 } })
        yield* openAndCool(crm)
        const thrown = Effect.sync((): void => {
          throw new TypeError("no such function")
        })
        assert(Exit.hasDies(yield* Effect.exit(crm.call(thrown))))
        const { breaker, inFlight } = yield* crm.snapshot
        assert.strictEqual(inFlight, 0)
        assert.include(["HalfOpen", "Open"], breaker!.position)
        yield* TestClock.adjust(Math.ceil(breaker!.retryAfterMillis))
        assert(Exit.isSuccess(yield* Effect.exit(crm.call(Effect.void))))
        assert.strictEqual(yield* positionOf(crm), "Closed")
      })
  )

  it.effect("F2: a probe that never settles loses its lease at its time-out, and one new probe is admitted", () =>
    Effect.gen(function* () {
      const crm = yield* make({ breaker: { consecutive: 1, openFor: "10 seconds" }, timeout: "20 seconds" })
      yield* openAndCool(crm)
      const hung = yield* start(crm.call(Effect.never))
      yield* TestClock.adjust("20 seconds")
      assert(Exit.isFailure(yield* Fiber.join(hung)))
      const { breaker } = yield* crm.snapshot
      assert.strictEqual(breaker?.position, "Open")
      yield* TestClock.adjust(Math.ceil(breaker!.retryAfterMillis))
      assert(Exit.isSuccess(yield* Effect.exit(crm.call(Effect.void))))
      assert.strictEqual(yield* positionOf(crm), "Closed")
    })
  )

  it.effect("F2: a probe that ignores its interruption for ever does not keep the breaker from finding out", () =>
    Effect.gen(function* () {
      const crm = yield* make({
        limit: Limit.fixed(4),
        breaker: { consecutive: 1, openFor: "10 seconds" },
        timeout: "20 seconds",
        grace: "1 second"
      })
      yield* openAndCool(crm)
      yield* start(crm.call(Effect.uninterruptible(Effect.sleep("10 hours"))))
      yield* TestClock.adjust("21 seconds")
      const { breaker, zombies } = yield* crm.snapshot
      assert.strictEqual(zombies, 1)
      yield* TestClock.adjust(Math.ceil(breaker!.retryAfterMillis))
      const next = yield* start(crm.call(Effect.succeed("back")))
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(next.pollUnsafe(), Exit.succeed(Exit.succeed("back")))
      assert.strictEqual(yield* positionOf(crm), "Closed")
    })
  )

  it.effect("F3: an outcome that says nothing of health neither closes nor opens a half-open breaker", () =>
    Effect.gen(function* () {
      const crm = yield* make({ breaker: { consecutive: 1 } })
      yield* openAndCool(crm)
      for (const _ of times(5)) {
        yield* Effect.exit(crm.call(badRequest))
        const { breaker, inFlight } = yield* crm.snapshot
        assert.deepStrictEqual([breaker?.position, breaker?.retryAfterMillis, inFlight], ["HalfOpen", 0, 0])
      }
      yield* Effect.exit(crm.call(fail))
      assert.strictEqual(yield* positionOf(crm), "Open")
    })
  )

  for (const late of ["succeeds", "fails"] as const) {
    it.effect(`F4: a slow call from before the trip that ${late} late changes nothing, and opening is told once`, () =>
      Effect.gen(function* () {
        class Crm extends Dependency.Service<Crm>()("crm", {
          limit: Limit.fixed(50),
          breaker: { consecutive: 5, openFor: "10 seconds" },
          timeout: "10 minutes"
        }) {}
        const work = Effect.gen(function* () {
          const slow = yield* start(Crm.call(Effect.delay(late === "fails" ? fail : Effect.void, "1 minute")))
          const failing = yield* Effect.forEach(times(20), () => start(Crm.call(Effect.delay(fail, "1 second"))))
          yield* Effect.forEach(failing, Fiber.join)
          const opened = (yield* Crm.snapshot).breaker!
          yield* Effect.sleep(Math.ceil(opened.retryAfterMillis))
          const probe = yield* start(Crm.call(Effect.sleep("5 minutes")))
          yield* Effect.sleep("1 second")
          const before = (yield* Crm.snapshot).breaker!.position
          yield* Fiber.join(slow)
          const after = (yield* Crm.snapshot).breaker!.position
          yield* Fiber.join(probe)
          return [opened.position, before, after, (yield* Crm.snapshot).breaker!.position]
        })
        const running = yield* Effect.forkChild(Effect.provide(inFleet(work), Crm.layer), { startImmediately: true })
        yield* TestClock.adjust("10 minutes")
        const { events, output } = yield* Fiber.join(running)
        assert.deepStrictEqual(output, ["Open", "HalfOpen", "HalfOpen", "Closed"])
        const moves = events.filter((event) => event._tag === "BreakerMoved").map(({ from, to }) => `${from} ${to}`)
        assert.deepStrictEqual(moves, ["Closed Open", "HalfOpen Closed"])
      })
    )
  }

  it.effect("F6: the window expires while nothing happens", () =>
    Effect.gen(function* () {
      const crm = yield* make({ breaker: { window: "5 seconds", rate: 0.2, minimum: 5 } })
      for (const _ of times(4)) yield* Effect.exit(crm.call(fail))
      yield* TestClock.adjust("5 minutes")
      yield* Effect.exit(crm.call(fail))
      assert.strictEqual(yield* positionOf(crm), "Closed")
      for (const _ of times(4)) yield* Effect.exit(crm.call(fail))
      assert.strictEqual(yield* positionOf(crm), "Open")
    })
  )

  it.effect("F7: the first call ever may fail: nothing opens below the minimum", () =>
    Effect.gen(function* () {
      const usual = yield* make()
      const byRate = yield* make({ breaker: { rate: 0.1 } })
      for (const crm of [usual, byRate]) {
        yield* Effect.exit(crm.call(fail))
        assert.strictEqual(yield* positionOf(crm), "Closed")
      }
      for (const _ of times(8)) yield* Effect.exit(byRate.call(fail))
      assert.strictEqual(yield* positionOf(byRate), "Closed")
      yield* Effect.exit(byRate.call(fail))
      assert.strictEqual(yield* positionOf(byRate), "Open")
    })
  )

  it.effect("F8: callers' errors of a healthy provider are no failures, and a bad key has a name of its own", () =>
    Effect.gen(function* () {
      const answer = (status: number, code: string) =>
        Effect.fail(
          Fault.openAi({
            dependency: "crm",
            status,
            body: { error: { code } },
            header: () => undefined,
            nowWallMillis: 0
          })
        )
      const crm = yield* make({ breaker: { consecutive: 5 } })
      for (const _ of times(50)) yield* Effect.exit(crm.call(answer(400, "context_length_exceeded")))
      for (const status of [401, 403]) {
        const error = yield* Effect.flip(crm.call(answer(status, "invalid_api_key")))
        assert.strictEqual(error._tag, "Unauthorized")
      }
      for (const _ of times(4)) yield* Effect.exit(crm.call(fail))
      assert.strictEqual(yield* positionOf(crm), "Closed")
      yield* Effect.exit(crm.call(fail))
      assert.strictEqual(yield* positionOf(crm), "Open")
    })
  )

  it.effect("F9: throttles pause the gate as long as asked and cut the limit once; the breaker stays closed", () =>
    Effect.gen(function* () {
      const crm = yield* make({ limit: Limit.adaptive({ initial: 20, maximum: 20 }), breaker: { consecutive: 1 } })
      const throttled = Effect.fail({ outcome: Outcome.throttled("2 seconds") })
      let asked = 0
      const upstream = Effect.suspend(() => Effect.delay(asked++ % 10 < 3 ? throttled : Effect.void, "100 millis"))
      const fibers = yield* Effect.forEach(times(20), () => start(crm.call(upstream)))
      yield* TestClock.adjust("100 millis")
      const { breaker, limit, pausedMillis } = yield* crm.snapshot
      assert.strictEqual(breaker?.position, "Closed")
      assert.strictEqual(limit, 16)
      assert(pausedMillis >= 2_000 && pausedMillis <= 2_500)
      yield* TestClock.adjust("1900 millis")
      assert.strictEqual(asked, 20)
      yield* TestClock.adjust("10 seconds")
      assert((yield* Effect.forEach(fibers, Fiber.join)).filter(Exit.isSuccess).length >= 17)
      assert.strictEqual(yield* positionOf(crm), "Closed")
    })
  )

  it.effect("F10: a caller that cancels is no failure and is not retried; our own time-out is one failure", () =>
    Effect.gen(function* () {
      const crm = yield* make({ breaker: { consecutive: 1 }, timeout: "5 seconds" })
      let upstream = 0
      const hang = Effect.andThen(
        Effect.sync(() => upstream++),
        Effect.never
      )
      for (const _ of times(3)) {
        const caller = yield* Effect.forkChild(crm.call(hang), { startImmediately: true })
        yield* TestClock.adjust("1 second")
        yield* Fiber.interrupt(caller)
      }
      assert.deepStrictEqual([yield* positionOf(crm), upstream], ["Closed", 3])
      const patient = yield* start(crm.call(hang))
      yield* TestClock.adjust("5 seconds")
      yield* Fiber.join(patient)
      assert.deepStrictEqual([yield* positionOf(crm), upstream], ["Open", 4])
    })
  )

  it.effect("F11: refusals of our own do not open it", () =>
    Effect.gen(function* () {
      const crm = yield* make({ limit: Limit.fixed(1), queue: 0, breaker: { consecutive: 1 } })
      const fibers = yield* Effect.forEach(times(10), () => start(crm.call(Effect.sleep("1 second"))))
      yield* TestClock.adjust("1 second")
      const exits = yield* Effect.forEach(fibers, Fiber.join)
      assert.strictEqual(exits.filter((exit) => refusalOf(exit)?.reason._tag === "QueueFull").length, 9)
      assert.strictEqual(yield* positionOf(crm), "Closed")
    })
  )

  it.effect("F12: those who wait behind a probe are let out by doubling steps, and each may leave before", () =>
    Effect.gen(function* () {
      const crm = yield* make({
        limit: Limit.fixed(100),
        breaker: { consecutive: 5, openFor: "30 seconds", rampStep: "1 second" }
      })
      let isDown = true
      let inFlight = 0
      let peak = 0
      const upstream = Effect.suspend(() => {
        if (isDown) return Effect.delay(fail, "1 second")
        peak = Math.max(peak, ++inFlight)
        return Effect.ensuring(
          Effect.sleep("20 seconds"),
          Effect.sync(() => inFlight--)
        )
      })
      const fibers = yield* Effect.forEach(times(600), () =>
        Effect.forkChild(Effect.exit(crm.call(upstream)), { startImmediately: true })
      )
      yield* TestClock.adjust("2 seconds")
      isDown = false
      assert.strictEqual(yield* positionOf(crm), "Open")
      const waiting = (yield* crm.snapshot).waiting[3]
      assert(waiting >= 490)
      yield* TestClock.adjust(Math.ceil((yield* crm.snapshot).breaker!.retryAfterMillis))
      assert.deepStrictEqual([inFlight, yield* positionOf(crm)], [1, "HalfOpen"])

      yield* Fiber.interrupt(fibers.at(-1)!)
      assert.strictEqual((yield* crm.snapshot).waiting[3], waiting - 2)

      yield* TestClock.adjust("19999 millis")
      assert.deepStrictEqual([inFlight, peak], [1, 1])
      yield* TestClock.adjust("1 millis")
      assert.strictEqual(yield* positionOf(crm), "Closed")
      for (const allowed of [1, 2, 4, 8, 16, 32, 64, 100, 100]) {
        assert.strictEqual(inFlight, allowed)
        yield* TestClock.adjust("1 second")
      }
      yield* TestClock.adjust("5 minutes")
      const exits = yield* Effect.forEach(fibers.slice(0, -1), Fiber.join)
      assert.strictEqual(exits.filter(Exit.isSuccess).length, waiting - 1)
      assert.deepStrictEqual([peak, inFlight, (yield* crm.snapshot).inFlight], [100, 0, 0])
    })
  )

  it.effect("F13: while half-open at most one probe is unsettled, whatever becomes of the ones before", () =>
    Effect.gen(function* () {
      const crm = yield* make({ breaker: { consecutive: 1, openFor: "10 seconds" }, timeout: "5 seconds" })
      yield* openAndCool(crm)
      let unsettled = 0
      let peak = 0
      let probes = 0
      const probe = <A, E>(work: Effect.Effect<A, E>) =>
        Effect.suspend(() => {
          probes++
          peak = Math.max(peak, ++unsettled)
          return Effect.ensuring(
            work,
            Effect.sync(() => unsettled--)
          )
        })
      for (const round of times(30)) {
        const work = round % 3 === 0 ? Effect.never : Effect.delay(badRequest, "1 second")
        const callers = yield* Effect.forEach(times(4), () =>
          Effect.forkChild(Effect.exit(crm.call(probe(work))), { startImmediately: true })
        )
        yield* TestClock.adjust("500 millis")
        yield* Effect.forEach(callers, Fiber.interrupt)
        assert.strictEqual(yield* positionOf(crm), "HalfOpen")
      }
      assert.deepStrictEqual([peak, unsettled, probes], [1, 0, 30])
      yield* crm.call(Effect.void)
      assert.strictEqual(yield* positionOf(crm), "Closed")
    })
  )
})
