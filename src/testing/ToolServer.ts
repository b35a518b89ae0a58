/**
 * A tool on loopback: a small HTTP service with a rate, a bad day, and moods.
 *
 * What an agent calls besides models are services that take so many requests a second and fail now and then. This one
 * answers `GET /<route>/<key>` with what a function says of the key, throttles beyond its rate with a true 429 and
 * `Retry-After`, and fails by a share that is a function of its seed, so that a run can be repeated.
 *
 * Needs `@effect/platform-node`.
 *
 * @stability experimental
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import { type ListenError, serve } from "./Listen.ts"
import { Meter } from "./internal/meter.ts"
import { draws } from "./internal/seeded.ts"

/**
 * - `routes`: by name, what is known of a key; `undefined` is a 404.
 * - `host` (default `127.0.0.1`), `port` (default 0, a free one), `seed` (default 0).
 * - `requestsPerSecond`: default none; beyond it 429 with `Retry-After` and `retry-after-ms`. `burst`: requests that may
 *   come at once, default 5.
 * - `maxConcurrency`: calls at once, beyond which 503; default none.
 * - `latencyMillis`: about how long an answer takes; default 50, varied by half.
 * - `failShare`: 503s; `hangShare`: no answer until the client gives up; shares from 0 to 1, default 0.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options {
  readonly routes: Readonly<Record<string, (key: string) => unknown>>
  readonly host?: string
  readonly port?: number
  readonly seed?: number
  readonly requestsPerSecond?: number
  readonly burst?: number
  readonly maxConcurrency?: number
  readonly latencyMillis?: number
  readonly failShare?: number
  readonly hangShare?: number
}

/**
 * What the server has counted.
 *
 * @category models
 * @since 0.1.0
 */
export interface Stats {
  readonly requests: number
  readonly ok: number
  readonly throttled: number
  readonly overloaded: number
  readonly failed: number
  readonly aborted: number
  readonly peakInFlight: number
}

/**
 * A running tool server.
 *
 * @category services
 * @since 0.1.0
 */
export class ToolServer extends Context.Service<
  ToolServer,
  {
    readonly url: string
    readonly stats: Effect.Effect<Stats>
  }
>()("espalier/testing/ToolServer") {}

const check = (option: keyof Options, rule: string, holds: boolean, value: unknown): void => {
  if (!holds) throw new RangeError(`ToolServer.make: ${option} must be ${rule}, got ${String(value)}`)
}

const share = (option: "failShare" | "hangShare", value: number = 0): number => {
  check(option, "a share from 0 to 1", value >= 0 && value <= 1, value)
  return value
}

const positive = (option: keyof Options, value: number): number => {
  check(option, "a finite number > 0", value > 0 && value < Infinity, value)
  return value
}

/**
 * Starts a server that listens until the scope closes.
 *
 * **Errors** `ListenError` for a port that is in use; a `RangeError` that names the option and the value.
 *
 * **Example** (One answer)
 *
 * ```ts
 * import { Effect } from "effect"
 * import * as ToolServer from "espalier/testing/ToolServer"
 *
 * const program = Effect.gen(function* () {
 *   const server = yield* ToolServer.make({ routes: { prices: (key) => ({ key, price: 12 }) }, latencyMillis: 1 })
 *   const answer = yield* Effect.promise(() => fetch(`${server.url}/prices/pear`))
 *   console.log(answer.status, yield* Effect.promise(() => answer.text())) // => 200 {"key":"pear","price":12}
 * })
 * await Effect.runPromise(Effect.scoped(program))
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = Effect.fnUntraced(function* (
  options: Options
): Effect.fn.Return<ToolServer["Service"], ListenError, Scope.Scope> {
  const failShare = share("failShare", options.failShare)
  const hangShare = share("hangShare", options.hangShare)
  const latencyMillis = options.latencyMillis === undefined ? 50 : positive("latencyMillis", options.latencyMillis)
  const clock = yield* Clock.Clock
  const now = (): number => Number(clock.monotonicTimeNanosUnsafe()) / 1_000_000
  const rate =
    options.requestsPerSecond === undefined ? undefined : positive("requestsPerSecond", options.requestsPerSecond)
  const burst = positive("burst", options.burst ?? 5)
  const meter = rate === undefined ? undefined : new Meter(rate * 60, burst / rate, now())
  const seen = new Map<string, number>()
  const stats = { requests: 0, ok: 0, throttled: 0, overloaded: 0, failed: 0, aborted: 0, peakInFlight: 0 }
  let inFlight = 0

  const answer = (path: string): Effect.Effect<HttpServerResponse.HttpServerResponse> => {
    const decoded = decodePath(path)
    if (decoded === undefined) return respond(400, { error: "the path has a bad escape" })
    const [route = "", key = ""] = decoded
    const known = Object.hasOwn(options.routes, route) ? options.routes[route]!(key) : undefined
    if (known === undefined) return respond(404, { error: `nothing is known of ${route} ${key}` })
    const times = seen.get(path) ?? 0
    if (seen.size < pathsKept || times > 0) seen.set(path, times + 1)
    const draw = draws(`${options.seed ?? 0}\n${times}\n${path}`)
    const fails = draw() < failShare
    if (draw() < hangShare) return Effect.never
    const wait = Effect.sleep(Duration.millis(latencyMillis * (0.5 + draw())))
    return Effect.andThen(wait, fails ? respond(503, { error: "try again" }) : respond(200, known))
  }

  const app = Effect.gen(function* () {
    const request = yield* HttpServerRequest.HttpServerRequest
    stats.requests++
    if (options.maxConcurrency !== undefined && inFlight >= options.maxConcurrency) {
      stats.overloaded++
      return yield* respond(503, { error: "too many calls at once" }, { "retry-after": "1" })
    }
    if (meter?.take(1, now()) === false) {
      stats.throttled++
      const wait = meter.waitMillis(1, now())
      const headers = { "retry-after": String(Math.ceil(wait / 1_000)), "retry-after-ms": String(wait) }
      return yield* respond(429, { error: "too many requests" }, headers)
    }
    inFlight++
    stats.peakInFlight = Math.max(stats.peakInFlight, inFlight)
    const path = request.url.split("?")[0] ?? "/"
    return yield* Effect.onExit(
      Effect.suspend(() => answer(path)),
      (exit) =>
        Effect.sync(() => {
          inFlight--
          if (!Exit.isSuccess(exit)) stats.aborted++
          else if (exit.value.status < 400) stats.ok++
          else stats.failed++
        })
    )
  })

  const url = yield* serve(options.host ?? "127.0.0.1", options.port ?? 0, app)
  return ToolServer.of({ url, stats: Effect.sync(() => ({ ...stats })) })
})

/** Paths whose repetitions are counted; beyond, each counts as the first. */
const pathsKept = 100_000

const decodePath = (path: string): ReadonlyArray<string> | undefined => {
  try {
    return path.slice(1).split("/").map(decodeURIComponent)
  } catch {
    return undefined
  }
}

const respond = (
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {}
): Effect.Effect<HttpServerResponse.HttpServerResponse> =>
  Effect.sync(() => HttpServerResponse.jsonUnsafe(body, { status, headers }))

/**
 * A server that lives as long as the layer.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options: Options): Layer.Layer<ToolServer, ListenError> => Layer.effect(ToolServer, make(options))
