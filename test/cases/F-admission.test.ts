/** The fleet: admission, deferral and numbers from outside. */
import { assert, describe, it } from "@effect/vitest"
import { Cause, Effect, Exit } from "effect"
import * as Budget from "espalier/Budget"
import * as Dependency from "espalier/Dependency"
import * as Envelope from "espalier/Envelope"
import * as Fleet from "espalier/Fleet"
import * as Limit from "espalier/Limit"
import { agent, within } from "./harness.ts"

const messageOf = (exit: Exit.Exit<unknown, unknown>): string => {
  assert(Exit.isFailure(exit), "accepted")
  const error = Cause.squash(exit.cause)
  assert.instanceOf(error, RangeError)
  return (error as RangeError).message
}

describe("deferred tasks", () => {
  it.effect("one that can no longer be funded does not keep those behind it from being resumed", () =>
    Effect.gen(function* () {
      const Work = agent("Work", (tokens: number) => Budget.charge(Effect.sleep(100), { hold: { tokens } }))
      const resumed = yield* within(
        "1 hour",
        Effect.gen(function* () {
          yield* Fleet.submit(Work, 60, { tokens: 60 })
          const dear = yield* Fleet.submit(Work, 50, { tokens: 50, whenFull: "defer", priority: 0 })
          const cheap = yield* Fleet.submit(Work, 10, { tokens: 10, whenFull: "defer" })
          const ended = yield* Effect.timeoutOption(cheap.await, "10 minutes")
          yield* dear.stop
          return ended._tag
        }).pipe(Effect.provide(Fleet.layer({ tokens: 100, tasks: 1 })))
      )
      assert.strictEqual(resumed, "Some")
    })
  )
})

describe("durations that are none", () => {
  const Root = agent("Root", () => Effect.void)
  const options: ReadonlyArray<readonly [string, (bad: number) => Effect.Effect<unknown, unknown>]> = [
    ["deadline", (bad) => Effect.provide(Fleet.run(Root, 0, { deadline: bad }), Fleet.layer())],
    ["grace", (bad) => Effect.provide(Effect.void, Fleet.layer({ grace: bad }))],
    ["estimate.time", (bad) => Effect.sync(() => agent("A", () => Effect.void, { estimate: { time: bad } }))],
    ["reserve.time", (bad) => Effect.sync(() => agent("A", () => Effect.void, { reserve: { time: bad } }))],
    ...(["timeout", "grace", "maxAge"] as const).map(
      (name) =>
        [name, (bad: number) => Effect.scoped(Dependency.make("crm", { limit: Limit.fixed(1), [name]: bad }))] as const
    ),
    [
      "within",
      (bad) =>
        Effect.provide(
          Fleet.run(
            agent("A", () => Envelope.within(bad)(Effect.void)),
            0
          ),
          Fleet.layer()
        )
    ]
  ]
  for (const [name, build] of options) {
    for (const bad of [Number.NaN, -5]) {
      it.effect(`${name} of ${bad} is a RangeError that names it and the value`, () =>
        Effect.gen(function* () {
          const message = messageOf(yield* Effect.exit(build(bad)))
          assert.include(message, String(bad))
          assert.match(message, name === "within" ? /Envelope\.within/ : new RegExp(name.replace(".", "\\.")))
        })
      )
    }
  }
})
