/** Stopping large and deep trees over real HTTP and a real clock: sockets closed, finalizers run, holds settled. */
import { NodeHttpClient } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { HttpClient } from "effect/http"
import * as Agent from "espalier/Agent"
import * as Dependency from "espalier/Dependency"
import * as Fleet from "espalier/Fleet"
import * as Limit from "espalier/Limit"
import * as ToolServer from "espalier/testing/ToolServer"
import { ownedCount } from "../../src/internal/envelope.ts"

class Tool extends Dependency.Service<Tool>()("tool", { limit: Limit.fixed(100), timeout: "1 minute" }) {}

const wide: Fleet.Options = {
  places: 100_000,
  width: 20_000,
  descendants: 200_000,
  spawnsPerSecond: 1e9,
  spawnBurst: 1_000_000
}
const agents = 10_000
const calls = 100

describe("cancellation", () => {
  it.live(
    "a tree of 10 000 agents with 100 calls in flight leaves no socket, finalizer, hold, place or fiber behind",
    () =>
      Effect.gen(function* () {
        const owned = ownedCount()
        const server = yield* ToolServer.make({ routes: { hang: () => ({}) }, hangShare: 1 })
        let finalized = 0
        const Leaf = Agent.make("Leaf", {
          input: Schema.Int,
          output: Schema.Void,
          run: (index) =>
            Effect.ensuring(
              index < calls
                ? Effect.asVoid(Tool.call(HttpClient.get(`${server.url}/hang/${index}`), { tokens: 10 }))
                : Effect.never,
              Effect.sync(() => finalized++)
            )
        })
        const Root = Agent.make("Root", {
          input: Schema.Void,
          output: Schema.Void,
          run: () =>
            Effect.andThen(
              Effect.forEach(
                Array.from({ length: agents }, (_, index) => index),
                (index) => Agent.spawn(Leaf, index),
                { discard: true }
              ),
              Effect.never
            )
        })
        const handle = yield* Fleet.submit(Root, undefined, { tokens: 1_000 })
        const busy = Effect.map(server.stats, ({ requests }) => requests === calls)
        while (!(yield* busy)) yield* Effect.sleep(20)
        let lag = 0
        let last = performance.now()
        const watch = yield* Effect.forkChild(
          Effect.forever(
            Effect.andThen(
              Effect.sync(() => {
                lag = Math.max(lag, performance.now() - last)
                last = performance.now()
              }),
              Effect.sleep(1)
            )
          )
        )
        const started = performance.now()
        yield* handle.stop
        const millis = performance.now() - started
        watch.interruptUnsafe()
        const report = yield* handle.report
        assert.strictEqual(report.ended.Interrupted, agents + 1)
        assert.strictEqual(finalized, agents)
        // What the calls used is not known, so each is charged what it held.
        assert.deepStrictEqual([report.subtree.tokens, report.estimated], [1_000, calls])
        const { live, places } = yield* Fleet.snapshot
        const gate = yield* Tool.snapshot
        assert.deepStrictEqual([live, places.inFlight, gate.inFlight, gate.zombies, ownedCount()], [0, 0, 0, 0, owned])
        const gone = Effect.map(server.stats, ({ aborted }) => aborted === calls)
        for (let turn = 0; turn < 50 && !(yield* gone); turn++) yield* Effect.sleep(20)
        assert.strictEqual((yield* server.stats).aborted, calls)
        assert.isBelow(millis, 2_000)
        assert.isBelow(lag, 500)
      }).pipe(Effect.scoped, Effect.provide([Fleet.layer(wide), Tool.layer, NodeHttpClient.layerUndici]))
  )

  it.live("a chain far deeper than any cap finishes on one place, and stops without overflowing the stack", () =>
    Effect.gen(function* () {
      let finalized = 0
      type Chain = Agent.Agent<number, number, never, unknown, never>
      const chain = (end: Effect.Effect<number>): Chain => {
        const link: Chain = Agent.make("Link", {
          input: Schema.Int,
          output: Schema.Int,
          measure: (n: number) => n,
          run: (n: number): Effect.Effect<number, unknown> =>
            Effect.ensuring(
              n === 0 ? end : Effect.map(Agent.run(link, n - 1), (below) => below + 1),
              Effect.sync(() => finalized++)
            )
        })
        return link
      }
      const depth = 5_000
      const { output, report } = yield* Fleet.run(chain(Effect.succeed(0)), depth)
      assert.deepStrictEqual([output, report.maxDepth, finalized], [depth, depth, depth + 1])
      finalized = 0
      const handle = yield* Fleet.submit(chain(Effect.never), depth)
      const deep = Effect.map(Fleet.snapshot, ({ live }) => live === depth + 1)
      while (!(yield* deep)) yield* Effect.sleep(20)
      yield* handle.stop
      assert.strictEqual(finalized, depth + 1)
      assert.strictEqual((yield* Fleet.snapshot).live, 0)
    }).pipe(Effect.provide(Fleet.layer({ ...wide, depth: 100_000, places: 1 })))
  )
})
