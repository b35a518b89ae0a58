/** Agents: what they may start, how they wait, what they publish, and what their options may be. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit } from "effect"
import * as Agent from "espalier/Agent"
import * as Budget from "espalier/Budget"
import * as Fleet from "espalier/Fleet"
import { agent, endOf, within } from "./cases/harness.ts"

const boom = (): never => {
  throw new TypeError("cannot read properties of undefined")
}

describe("orWrapUp", () => {
  it.effect("runs its finish once, also when the finish itself runs out of budget", () =>
    Effect.gen(function* () {
      const finishes: Array<string> = []
      const Root = agent("Root", () =>
        Agent.orWrapUp(Effect.never, (why) =>
          Effect.suspend(() => {
            finishes.push(why)
            return Budget.charge(Effect.void, { hold: { tokens: 1_000 } })
          })
        )
      )
      const run = Fleet.run(Root, 0, { tokens: 10, deadline: "1 minute" }).pipe(Effect.provide(Fleet.layer()))
      yield* endOf("1 hour", run)
      assert.deepStrictEqual(finishes, ["deadline"])
    })
  )
})

describe("functions of the agent's options that throw", () => {
  it.effect("label: the node ends all the same, and so does its tree", () =>
    Effect.gen(function* () {
      const Leaf = agent("Leaf", () => Effect.sleep(1), { label: boom })
      const Root = agent("Root", () => Effect.exit(Agent.run(Leaf, 1)))
      const live = yield* within(
        "1 hour",
        Effect.gen(function* () {
          yield* Fleet.submit(Root, 0)
          yield* Effect.sleep("10 minutes")
          return (yield* Fleet.snapshot).live
        }).pipe(Effect.provide(Fleet.layer()))
      )
      assert.strictEqual(live, 0)
    })
  )

  it.effect("identity: nothing is started, and the fleet has its tokens back", () =>
    Effect.gen(function* () {
      const Root = agent("Root", () => Effect.void, { identity: boom })
      const Sound = agent("Sound", () => Effect.void)
      const [failed, live, next] = yield* within(
        "1 hour",
        Effect.gen(function* () {
          const first = yield* Effect.exit(Fleet.run(Root, 0, { tokens: 100 }))
          const { live } = yield* Fleet.snapshot
          return [first, live, yield* Effect.exit(Fleet.run(Sound, 0, { tokens: 100 }))] as const
        }).pipe(Effect.provide(Fleet.layer({ tokens: 100 })))
      )
      assert(Exit.isFailure(failed))
      assert.deepStrictEqual([live, next._tag], [0, "Success"])
    })
  )
})

describe("estimates", () => {
  it.effect("of money: it is not started with less, as a root or as a child", () =>
    Effect.gen(function* () {
      let ran = 0
      const Dear = agent("Dear", () => Effect.sync(() => ran++), { estimate: { microDollars: 50 } })
      const Parent = agent("Parent", () => Effect.exit(Agent.run(Dear, 1, { microDollars: 10 })))
      yield* within(
        "1 minute",
        Effect.gen(function* () {
          yield* Effect.exit(Fleet.run(Dear, 0, { microDollars: 10 }))
          yield* Fleet.run(Parent, 0, { microDollars: 1_000 })
        }).pipe(Effect.provide(Fleet.layer()))
      )
      assert.strictEqual(ran, 0)
    })
  )
})
