/** The fleet: what is admitted, refused, parked, and how it shuts down; and what it says of bad numbers. */
import { assert, describe, it } from "@effect/vitest"
import { Cause, Effect, Exit, Fiber, Schema } from "effect"
import { TestClock } from "effect/testing"
import * as Agent from "espalier/Agent"
import * as Dependency from "espalier/Dependency"
import * as Fleet from "espalier/Fleet"
import * as Limit from "espalier/Limit"
import { isRejected } from "espalier/Rejected"

const Sleeper = Agent.make("Sleeper", {
  input: Schema.Finite,
  output: Schema.Finite,
  label: (millis) => `sleeps ${millis}`,
  run: (millis) => Effect.as(Effect.sleep(millis), millis)
})
const start = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.forkChild(effect, { startImmediately: true })
const reasonOf = (exit: Exit.Exit<unknown, unknown>): string => {
  const error = Exit.isFailure(exit) ? Cause.findErrorOption(exit.cause) : undefined
  return error?._tag === "Some" && isRejected(error.value) ? error.value.reason._tag : "none"
}

describe("admission", () => {
  it.effect("when full, the caller chooses: refuse, wait in the order of tiers, or defer and come back", () =>
    Effect.gen(function* () {
      const order: Array<string> = []
      const Named = Agent.make("Named", {
        input: Schema.String,
        output: Schema.Void,
        run: (name) =>
          Effect.andThen(
            Effect.sync(() => order.push(name)),
            Effect.sleep("1 second")
          )
      })
      yield* Fleet.submit(Named, "first")
      assert.strictEqual(
        reasonOf(yield* Effect.exit(Fleet.submit(Named, "refused", { whenFull: "refuse" }))),
        "QueueFull"
      )
      const deferred = yield* Fleet.submit(Named, "deferred", { whenFull: "defer", priority: 0 })
      assert.isTrue(yield* deferred.isDeferred)
      const low = yield* start(Fleet.submit(Named, "low", { priority: 3 }))
      const high = yield* start(Fleet.submit(Named, "high", { priority: 0 }))
      assert.strictEqual(reasonOf(yield* Effect.exit(Fleet.submit(Named, "too many"))), "QueueFull")
      yield* TestClock.adjust("10 seconds")
      yield* Fiber.join(low)
      yield* Fiber.join(high)
      assert.deepStrictEqual(order, ["first", "high", "low", "deferred"])
      const report = yield* deferred.report
      assert.deepStrictEqual([report.state, report.resumes], ["Completed", "task-3"])
    }).pipe(Effect.provide(Fleet.layer({ tasks: 1, queue: 2 })))
  )

  it.effect("waiting and being deferred count against the deadline", () =>
    Effect.gen(function* () {
      yield* Fleet.submit(Sleeper, 60_000)
      const waiting = yield* start(Fleet.submit(Sleeper, 1, { deadline: "5 seconds" }))
      const deferred = yield* Fleet.submit(Sleeper, 1, { deadline: "5 seconds", whenFull: "defer" })
      yield* TestClock.adjust("6 seconds")
      const handle = yield* Fiber.join(waiting)
      assert.deepStrictEqual([(yield* handle.await)._tag, (yield* deferred.await)._tag], ["Expired", "Expired"])
      yield* TestClock.adjust("1 minute")
    }).pipe(Effect.provide(Fleet.layer({ tasks: 1 })))
  )

  it.effect("a fleet's own budget bounds all tasks together, and what a task leaves comes back", () =>
    Effect.gen(function* () {
      const first = yield* Fleet.submit(Sleeper, 1_000, { tokens: 80 })
      assert.strictEqual(reasonOf(yield* Effect.exit(Fleet.submit(Sleeper, 1, { tokens: 30 }))), "BudgetExceeded")
      yield* TestClock.adjust("1 second")
      yield* first.join
      yield* Fleet.submit(Sleeper, 1, { tokens: 100 })
      yield* TestClock.adjust("1 second")
    }).pipe(Effect.provide(Fleet.layer({ tokens: 100 })))
  )

  it.effect("an input that does not fit its schema is refused by place, without its value", () =>
    Effect.gen(function* () {
      const Strict = Agent.make("Strict", {
        input: Schema.Struct({ account: Schema.Struct({ id: Schema.Int }) }),
        output: Schema.Void,
        run: () => Effect.void
      })
      const exit = yield* Effect.exit(Fleet.submit(Strict, { account: { id: "sk-secret" } } as never))
      assert.strictEqual(reasonOf(exit), "InvalidInput")
      const text = Exit.isFailure(exit) ? Cause.pretty(exit.cause) : ""
      assert.include(text, "the input.account.id has the wrong type")
      assert.notInclude(text, "sk-secret")
    }).pipe(Effect.provide(Fleet.layer()))
  )
})

describe("shutdown", () => {
  it.effect("nothing new starts, what runs may end within the grace, and what was cut off is named", () =>
    Effect.gen(function* () {
      const Root = Agent.make("Root", {
        input: Schema.Void,
        output: Schema.Any,
        run: () => Agent.forEach(Sleeper, [1_000, 60_000, 2_000], { concurrency: 2 })
      })
      const handle = yield* Fleet.submit(Root, undefined)
      yield* TestClock.adjust(100)
      const drained = yield* start(Fleet.drain("5 seconds"))
      assert.strictEqual(reasonOf(yield* Effect.exit(Fleet.submit(Sleeper, 1))), "Draining")
      yield* TestClock.adjust("6 seconds")
      const { cutOff, deaf } = yield* Fiber.join(drained)
      assert.deepStrictEqual(
        cutOff.map((node) => node.label ?? node.agent),
        ["sleeps 60000", "Root"]
      )
      assert.deepStrictEqual(deaf, [])
      const report = yield* handle.report
      assert.deepStrictEqual([report.ended.Completed, report.ended.Rejected, report.ended.Interrupted], [1, 1, 2])
    }).pipe(Effect.provide(Fleet.layer()))
  )
})

describe("bad numbers", () => {
  const message = (run: () => unknown): string => {
    try {
      const value = run()
      if (!Effect.isEffect(value)) return "accepted"
      const exit = Effect.runSyncExit(value as Effect.Effect<unknown>)
      if (Exit.isSuccess(exit)) return "accepted"
      return String(Cause.squash(exit.cause))
    } catch (error) {
      return String(error)
    }
  }
  const submit = (options: Fleet.SubmitOptions) => () =>
    Effect.provide(Fleet.submit(Sleeper, 1, options), Fleet.layer())
  const layer = (options: Fleet.Options) => () => Effect.provide(Effect.void, Fleet.layer(options))
  const cases: ReadonlyArray<readonly [() => unknown, RegExp]> = [
    ...[-1, Number.NaN, Infinity, 1.5, 1e99].flatMap((value): ReadonlyArray<readonly [() => unknown, RegExp]> => [
      [submit({ tokens: value }), /RangeError: Fleet\.submit\(Sleeper\): tokens must be an integer >= 0, got /],
      [submit({ microDollars: value }), /microDollars must be an integer >= 0/],
      [layer({ tokens: value }), /RangeError: Fleet\.layer: tokens must be an integer >= 0/],
      [submit({ depth: value }), /depth must be an integer from 0 to 1000000/],
      [layer({ places: value }), /places must be an integer from 1 to 1000000/],
      [() => Limit.fixed(value), /Limit\.fixed: limit must be an integer from 1 to 1000000/],
      [
        () =>
          Agent.make("A", {
            input: Schema.Void,
            output: Schema.Void,
            grant: { tokens: value },
            run: () => Effect.void
          }),
        /Agent\.make\("A"\): grant: tokens/
      ]
    ]),
    [submit({ priority: 4 }), /priority must be 0 \(must ship\), 1, 2 or 3 \(nice to have\), got 4/],
    [submit({ deadline: 0 }), /deadline must be a duration above zero from now, got 0 ms/],
    [submit({ deadline: -5 }), /deadline must be a duration above zero/],
    [() => Effect.scoped(Dependency.make("d", { limit: Limit.fixed(1), queue: -1 })), /queue must be an integer/],
    [
      () => Agent.make(" ", { input: Schema.Void, output: Schema.Void, run: () => Effect.void }),
      /name must not be empty/
    ]
  ]
  it("each is a RangeError that names who, what and how, and nothing has started", () => {
    for (const [run, expected] of cases) assert.match(message(run), expected)
  })
})
