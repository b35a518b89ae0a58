/** Cases F14 to F22: slots, places, lines and cancellation, in virtual time. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Agent from "espalier/Agent"
import * as Budget from "espalier/Budget"
import * as Dependency from "espalier/Dependency"
import * as Fleet from "espalier/Fleet"
import * as Limit from "espalier/Limit"
import { agent, endOf, interruptedAfter, mine, start, sweep, turns, within } from "./harness.ts"

class Narrow extends Dependency.Service<Narrow>()("narrow", {
  limit: Limit.fixed(1),
  timeout: "Infinity",
  breaker: false
}) {}

describe("F14 places and waiting for children", () => {
  const Leaf = agent("Leaf", (millis: number) => Effect.as(Effect.sleep(millis), millis))

  it.effect("F14: two fibers of one agent that wait for children at different times both go on, at one place", () =>
    Effect.gen(function* () {
      const Root = agent("Root", () =>
        Effect.all([Agent.run(Leaf, 100), Effect.andThen(Effect.sleep(150), Agent.run(Leaf, 51))], { concurrency: 2 })
      )
      const Other = agent("Other", () => Effect.sleep("1 second"))
      const [{ output }] = yield* within(
        "1 hour",
        Effect.all([Fleet.run(Root, 0), Effect.andThen(Effect.sleep(50), Fleet.run(Other, 1))], {
          concurrency: 2
        }).pipe(Effect.provide(Fleet.layer({ places: 1 })))
      )
      assert.deepStrictEqual(output, [100, 51])
    })
  )
})

describe("F17 interruption at every step", () => {
  it.effect("F17: a call gives its slot and its hold back, and its caller ends", () =>
    Effect.gen(function* () {
      const wrong = yield* sweep({ ops: 64, steps: 12 }, (ops, step) => {
        const calls = Effect.forEach([1, 2, 3], () => Narrow.call(Effect.yieldNow, { tokens: 10 }), { concurrency: 3 })
        const Root = agent("Root", () =>
          Effect.gen(function* () {
            yield* interruptedAfter(ops, step, calls)
            const { account } = yield* mine
            const { inFlight, waiting } = yield* Narrow.snapshot
            return [account.tokens.held, inFlight, ...waiting].join(" ")
          })
        )
        const run = Effect.provide(Fleet.run(Root, 0, { tokens: 100 }), [Fleet.layer({ grace: 0 }), Narrow.layer])
        return Effect.map(endOf("10 seconds", run), (exit) => {
          if (exit?._tag !== "Success") return `ended ${exit?._tag}`
          return exit.value.output === "0 0 0 0 0 0" ? undefined : exit.value.output
        })
      })
      assert.deepStrictEqual(wrong, [])
    })
  )

  it.effect("F17: a loop gives back the place that it was about to hand to a child", () =>
    Effect.gen(function* () {
      const Leaf = agent("Leaf", () => Effect.yieldNow)
      const wrong = yield* sweep({ ops: 64, steps: 30 }, (ops, step) => {
        const Root = agent("Root", () => interruptedAfter(ops, step, Agent.forEach(Leaf, [1, 2, 3, 4])))
        return Effect.gen(function* () {
          const fiber = yield* start(Fleet.run(Root, 0))
          for (let turn = 0; turn < 500 && fiber.pollUnsafe() === undefined; turn++) yield* Effect.yieldNow
          const { live, places } = yield* Fleet.snapshot
          const left = [live, places.inFlight, ...places.waiting].join(" ")
          return fiber.pollUnsafe() !== undefined && left === "0 0 0 0 0 0" ? undefined : left
        }).pipe(Effect.provide(Fleet.layer({ grace: 0, places: 1 })))
      })
      assert.deepStrictEqual(wrong, [])
    })
  )

  it.effect("F17: a race stops all its agents", () =>
    Effect.gen(function* () {
      const rivals = ["a", "b"].map((name) => agent(name, () => Effect.never))
      const wrong = yield* sweep({ ops: 64, steps: 12 }, (ops, step) => {
        const Root = agent("Root", () =>
          Effect.gen(function* () {
            yield* interruptedAfter(ops, step, Agent.race(rivals, 0))
            const { node } = yield* mine
            return node.childCount
          })
        )
        return Effect.map(Effect.provide(Fleet.run(Root, 0), Fleet.layer({ grace: 0 })), ({ output }) =>
          output === 0 ? undefined : `${output} still run`
        )
      })
      assert.deepStrictEqual(wrong, [])
    })
  )

  it.effect("F17: a task that was run, not submitted, is stopped with its caller", () =>
    Effect.gen(function* () {
      const Root = agent("Root", () => Effect.never)
      const wrong = yield* sweep({ ops: 64, steps: 20 }, (ops, step) =>
        Effect.gen(function* () {
          yield* interruptedAfter(ops, step, Fleet.run(Root, 0))
          const { live } = yield* Fleet.snapshot
          return live === 0 ? undefined : `${live} live`
        }).pipe(Effect.provide(Fleet.layer({ grace: 0 })))
      )
      assert.deepStrictEqual(wrong, [])
    })
  )

  it.effect("F17: a child that was run, not spawned, is stopped with its caller", () =>
    Effect.gen(function* () {
      const Leaf = agent("Leaf", () => Effect.never)
      const wrong = yield* sweep({ ops: 64, steps: 12 }, (ops, step) => {
        const Root = agent("Root", () =>
          Effect.gen(function* () {
            yield* interruptedAfter(ops, step, Agent.run(Leaf, 0))
            const { node } = yield* mine
            return node.childCount
          })
        )
        return Effect.map(Effect.provide(Fleet.run(Root, 0), Fleet.layer({ grace: 0 })), ({ output }) =>
          output === 0 ? undefined : `${output} still run`
        )
      })
      assert.deepStrictEqual(wrong, [])
    })
  )

  it.effect("F17: a charge gives its hold back", () =>
    Effect.gen(function* () {
      const wrong = yield* sweep({ ops: 64, steps: 8 }, (ops, step) => {
        const Root = agent("Root", () =>
          Effect.gen(function* () {
            yield* interruptedAfter(ops, step, Budget.charge(turns(3), { hold: { tokens: 10 }, usage: () => ({}) }))
            const { account } = yield* mine
            return account.tokens.held
          })
        )
        return Effect.map(Effect.provide(Fleet.run(Root, 0, { tokens: 10 }), Fleet.layer({ grace: 0 })), ({ output }) =>
          output === 0 ? undefined : `${output} held`
        )
      })
      assert.deepStrictEqual(wrong, [])
    })
  )
})
