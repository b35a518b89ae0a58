/** Budgets: what may be held, what is settled, and what is left. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Agent from "espalier/Agent"
import * as Budget from "espalier/Budget"
import * as Fleet from "espalier/Fleet"
import { agent, within } from "./cases/harness.ts"

const inFleet = <A, E>(effect: Effect.Effect<A, E, Fleet.Fleet>) =>
  within("1 hour", Effect.provide(effect, Fleet.layer()))

describe("charge", () => {
  for (const tokens of [Number.NaN, -5, 1.5, Number.POSITIVE_INFINITY, 2 ** 53]) {
    it.effect(`a usage of ${tokens} is no usage: the hold is charged and the books stay whole`, () =>
      Effect.gen(function* () {
        const usage = () => ({ tokens })
        const Root = agent("Root", () =>
          Effect.andThen(
            Effect.exit(Budget.charge(Effect.void, { hold: { tokens: 10 }, usage })),
            Effect.exit(Budget.charge(Effect.void, { hold: { tokens: 20 } }))
          )
        )
        const { report } = yield* inFleet(Fleet.run(Root, 0, { tokens: 100 }))
        assert.strictEqual(report.subtree.tokens, 30)
      })
    )
  }
})

describe("remaining", () => {
  it.effect("is nothing below an account that was stopped, as a hold there is refused", () =>
    Effect.gen(function* () {
      const Leaf = agent("Leaf", () =>
        Effect.gen(function* () {
          yield* Effect.sleep(10)
          const { tokens } = yield* Budget.remaining
          return [tokens, (yield* Effect.exit(Budget.charge(Effect.void, { hold: { tokens: 1 } })))._tag]
        })
      )
      const Middle = agent("Middle", () =>
        Effect.gen(function* () {
          const leaf = yield* Agent.spawn(Leaf, 1)
          yield* Budget.charge(Effect.void, { hold: { tokens: 1 }, usage: () => ({ tokens: 5 }) })
          return yield* leaf.join
        })
      )
      const { output } = yield* inFleet(
        Fleet.run(
          agent("Root", () => Agent.run(Middle, 1)),
          0,
          { tokens: 100 }
        )
      )
      assert.deepStrictEqual(output, [0, "Failure"])
    })
  )
})
