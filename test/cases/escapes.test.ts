/** The envelope as a capability: agent code has no way to a wider one. */
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect } from "effect"
import * as Dependency from "espalier/Dependency"
import * as Fleet from "espalier/Fleet"
import * as Limit from "espalier/Limit"
import { agent, within } from "./harness.ts"

class Narrow extends Dependency.Service<Narrow>()("narrow", { limit: Limit.fixed(1), breaker: false }) {}

const inFleet = <A, E>(effect: Effect.Effect<A, E, Fleet.Fleet | Narrow>) =>
  within("1 hour", Effect.provide(effect, [Fleet.layer(), Narrow.layer]))

describe("a slot", () => {
  it.effect("is not lent by a call that agent code made up", () =>
    Effect.gen(function* () {
      const CurrentCall = Context.Reference<any>("espalier/CurrentCall", { defaultValue: () => undefined })
      let inFlight = 0
      let peak = 0
      const work = Effect.acquireUseRelease(
        Effect.sync(() => {
          peak = Math.max(peak, ++inFlight)
        }),
        () => Effect.sleep(10),
        () => Effect.sync(() => inFlight--)
      )
      const Root = agent("Root", () =>
        Effect.gen(function* () {
          const real = yield* Narrow.call(Effect.withFiber((fiber) => Effect.succeed(fiber.getRef(CurrentCall))))
          const loan = { withPermits: () => (effect: unknown) => effect }
          const fake = { site: real?.site, state: "granted", outer: undefined, loan }
          yield* Effect.forEach(
            [1, 2, 3, 4],
            () => Effect.provideService(Effect.exit(Narrow.call(work)), CurrentCall, fake),
            { concurrency: 4 }
          )
        })
      )
      yield* inFleet(Fleet.run(Root, 0))
      assert.strictEqual(peak, 1)
    })
  )
})
