/** Laws 1 to 5, 8, 11, 12 and 13 over random trees, under a virtual clock. A failing seed is in the test's message. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Scheduler } from "effect"
import { TestClock } from "effect/testing"
import { run, settingOf } from "./randomTree.ts"

const seeds = (from: number, count: number): ReadonlyArray<number> =>
  Array.from({ length: count }, (_, index) => from + index)

const named = <A, E>(seed: number, what: string, effect: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  Effect.tapCause(effect, () => Effect.sync(() => console.error(`seed ${seed}${what}`)))

describe("laws of the tree", () => {
  for (const from of [0, 100, 200]) {
    it.effect(`hold for any tree, budget, deadline and number of places (seeds ${from} to ${from + 99})`, () =>
      Effect.forEach(seeds(from, 100), (seed) => named(seed, "", run(settingOf(seed))), { discard: true })
    )
  }

  it.effect("hold when the task is stopped at any moment", () =>
    Effect.forEach(
      seeds(1_000, 150),
      (seed) => {
        const after = (seed * 37) % 1_500
        return named(seed, ` stopped after ${after} ms`, run(settingOf(seed), after))
      },
      { discard: true }
    )
  )

  it.effect("law 13: the same seed gives the same history", () =>
    Effect.forEach(
      seeds(2_000, 40),
      (seed) =>
        Effect.gen(function* () {
          const setting = settingOf(seed)
          const onNewClock = () => named(seed, "", run(setting).pipe(Effect.provide(TestClock.layer())))
          const first = yield* onNewClock()
          const again = yield* onNewClock()
          assert.deepStrictEqual(again.events, first.events, `seed ${seed}`)
        }),
      { discard: true }
    )
  )

  it.effect("hold when fibers yield after every 3rd to 64th operation and the task is stopped on the way", () =>
    Effect.forEach(
      Array.from({ length: 62 }, (_, index) => index + 3),
      (ops) =>
        Effect.forEach(
          [0, 90, 400],
          (after) => {
            const seed = 3_000 + ops
            const swept = Effect.provideService(run(settingOf(seed), after), Scheduler.MaxOpsBeforeYield, ops)
            return named(seed, ` ops ${ops} stopped after ${after} ms`, swept)
          },
          { discard: true }
        ),
      { discard: true }
    )
  )
})
