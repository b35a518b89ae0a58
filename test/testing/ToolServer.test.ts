/** The tool server over real HTTP: its rate, its failures, its slots. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as ToolServer from "espalier/testing/ToolServer"

const routes = {
  prices: (key: string) => (key === "pear" ? { price: 12 } : undefined),
  broken: () => {
    throw new Error("a bug in a route")
  }
}
const run = <A, E>(
  options: Partial<ToolServer.Options>,
  use: (server: ToolServer.ToolServer["Service"]) => Effect.Effect<A, E>
) => Effect.scoped(Effect.flatMap(ToolServer.make({ routes, latencyMillis: 1, ...options }), use))
const get = (url: string, path: string) => Effect.promise(() => fetch(url + path))
const statuses = (url: string, paths: ReadonlyArray<string>) =>
  Effect.forEach(paths, (path) => Effect.map(get(url, path), (answer) => answer.status))

describe("ToolServer", () => {
  it.live("answers what is known, and 404 for what is not", () =>
    run({}, ({ url }) =>
      Effect.gen(function* () {
        const answer = yield* get(url, "/prices/pear")
        assert.deepStrictEqual(yield* Effect.promise(() => answer.json()), { price: 12 })
        assert.deepStrictEqual(
          yield* statuses(url, ["/prices/fig", "/nothing/pear", "/constructor/x"]),
          [404, 404, 404]
        )
      })
    )
  )

  it.live("throttles beyond its rate, and says when to come back", () =>
    run({ requestsPerSecond: 10, burst: 2 }, ({ url, stats }) =>
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* statuses(url, ["/prices/pear", "/prices/pear", "/prices/pear"]), [200, 200, 429])
        const answer = yield* get(url, "/prices/pear")
        assert.strictEqual(answer.headers.get("retry-after"), "1")
        const wait = Number(answer.headers.get("retry-after-ms"))
        assert.isTrue(wait > 0 && wait <= 100)
        yield* Effect.sleep(wait + 5)
        assert.deepStrictEqual(yield* statuses(url, ["/prices/pear"]), [200])
        assert.deepInclude(yield* stats, { ok: 3, throttled: 2 })
      })
    )
  )

  it.live("slots come back from whatever happened: a bad path, a route that throws, a client that left", () =>
    run({ maxConcurrency: 1, latencyMillis: 200 }, ({ url }) =>
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* statuses(url, ["/prices/%E0", "/broken/x"]), [400, 500])
        const left = yield* Effect.promise(() =>
          fetch(`${url}/prices/pear`, { signal: AbortSignal.timeout(30) }).then(
            () => "answered",
            () => "left"
          )
        )
        assert.strictEqual(left, "left")
        yield* Effect.sleep(30)
        const both = yield* Effect.all([get(url, "/prices/pear"), get(url, "/prices/pear")], { concurrency: 2 })
        assert.deepStrictEqual(both.map((answer) => answer.status).sort(), [200, 503])
      })
    )
  )

  it.live("fails by its share, the same way for the same seed", () =>
    Effect.gen(function* () {
      const paths = Array.from({ length: 60 }, () => "/prices/pear")
      const first = yield* run({ seed: 3, failShare: 0.3 }, ({ url }) => statuses(url, paths))
      const again = yield* run({ seed: 3, failShare: 0.3 }, ({ url }) => statuses(url, paths))
      assert.deepStrictEqual(again, first)
      const failed = first.filter((status) => status === 503).length
      assert.isTrue(failed > 6 && failed < 32)
    })
  )

  it("options out of range throw a RangeError that names option and value", () => {
    const make = (options: Partial<ToolServer.Options>) => () =>
      Effect.runSync(Effect.scoped(ToolServer.make({ routes, ...options })))
    assert.throws(make({ failShare: 2 }), /failShare must be a share from 0 to 1, got 2/)
    assert.throws(make({ requestsPerSecond: 0 }), /requestsPerSecond must be a finite number > 0, got 0/)
  })
})
