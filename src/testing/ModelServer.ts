/**
 * A model provider on loopback: a real HTTP server with OpenAI's and Anthropic's shapes and with limits that hurt.
 *
 * Programs that call models are tested against mocks that never say no, and meet their first 429 in production. This
 * server says no for real: it counts requests and tokens a minute and calls at once, slows down under load, throttles
 * with each provider's own status, body and headers, fails and breaks off on request. Its replies, delays and faults are
 * a function of its seed and the request, so a run can be repeated. It counts what it served, so that a client's books
 * can be checked against it.
 *
 * Serves `POST /v1/chat/completions`, `/v1/responses` (OpenAI) and `/v1/messages` (Anthropic), streaming or not. Tokens
 * of a text are a quarter of its UTF-8 bytes, rounded up. Bodies are capped at 4 MB.
 *
 * Needs `@effect/platform-node`.
 *
 * @stability experimental
 * @since 0.1.0
 */
import * as ByteSize from "effect/ByteSize"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as HttpIncomingMessage from "effect/http/HttpIncomingMessage"
import * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import { type Api, decode } from "./internal/ask.ts"
import * as desks from "./internal/desk.ts"
import { Desk, logKept, type Settings } from "./internal/desk.ts"
import { type Reply, replyTo } from "./internal/reply.ts"
import { type Answer, error } from "./internal/shapes.ts"
import { abandoned, faultOf, streamed, type Visit, whole } from "./internal/visit.ts"
import { type ListenError, serve } from "./Listen.ts"

/**
 * Faults, each as a share of requests from 0 to 1; all default to 0.
 *
 * - `error`: a 500 instead of an answer. `malformed`: a 200 whose JSON body is broken. `cut`: the connection or the stream
 *   breaks off half way. `errorInStream`: an error event inside a stream that began with 200. `hang`: no answer at all
 *   until the client gives up.
 *
 * @category models
 * @since 0.1.0
 */
export interface Faults extends desks.Faults {}

/**
 * - `host`: default `127.0.0.1`. `port`: default 0, a free one. `seed`: default 0.
 * - `maxConcurrency`: calls served at full speed; default 64. Beyond, all of them slow down; at four times as many the
 *   next one is refused as overloaded (529 or 503).
 * - `hardConcurrency`: calls at once beyond which the next is throttled (429); default none.
 * - `requestsPerMinute`, `tokensPerMinute`: default none. `burstSeconds`: how much of them may come at once; default 5.
 * - `quota`: tokens in all, after which every call is refused with `insufficient_quota`; default none.
 * - `baseMillis` (300), `promptTokensPerSecond` (10 000), `outputTokensPerSecond` (80): how long a call takes at full
 *   speed. `timeScale`: everything so many times faster; default 1.
 * - `faults`: default none. `keys`: accepted API keys; default any.
 * - `reply`: what to answer; `undefined` leaves it to the default, which fits the schema that was asked for.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options extends Settings {
  readonly host?: string
  readonly port?: number
  readonly keys?: ReadonlyArray<string>
}

/**
 * What the server has counted since it started or was reset. Tokens are those of answers that were served, in full or in
 * part; `inFlight` and `peakInFlight` count calls that were let in.
 *
 * @category models
 * @since 0.1.0
 */
export interface Stats extends desks.Stats {}

/**
 * One request in the server's log; `request` is the client's `x-request-id`, where it sent one.
 *
 * @category models
 * @since 0.1.0
 */
export interface Served extends desks.Served {}

/**
 * A running model server. `url` has no trailing slash; `log` holds the last 10 000 requests.
 *
 * @category services
 * @since 0.1.0
 */
export class ModelServer extends Context.Service<
  ModelServer,
  {
    readonly url: string
    readonly stats: Effect.Effect<Stats>
    readonly log: Effect.Effect<ReadonlyArray<Served>>
    readonly counted: (id: string) => Effect.Effect<Served | undefined>
    readonly setFaults: (faults: Partial<Faults>) => Effect.Effect<void>
    readonly brownout: (options: {
      readonly slots: number
      readonly errors: number
      readonly duration: Duration.Input
    }) => Effect.Effect<void>
    readonly reset: Effect.Effect<void>
  }
>()("espalier/testing/ModelServer") {}

const apis: Record<string, Api> = {
  "/v1/chat/completions": "chat",
  "/v1/responses": "responses",
  "/v1/messages": "messages"
}
const bodyLimit = ByteSize.megabytes(4)

const check = (option: string, rule: string, holds: boolean, value: unknown): void => {
  if (!holds) throw new RangeError(`ModelServer.make: ${option} must be ${rule}, got ${String(value)}`)
}

const checkOptions = (options: Options): void => {
  const integer = (
    option: keyof Options,
    value: number | undefined,
    least: number,
    most = Number.MAX_SAFE_INTEGER
  ): void => {
    if (value === undefined) return
    const rule = most === Number.MAX_SAFE_INTEGER ? `an integer >= ${least}` : `an integer from ${least} to ${most}`
    check(option, rule, Number.isSafeInteger(value) && value >= least && value <= most, value)
  }
  const positive = (option: keyof Options, value: number | undefined): void => {
    if (value !== undefined) check(option, "a finite number > 0", Number.isFinite(value) && value > 0, value)
  }
  integer("port", options.port, 0, 65_535)
  integer("maxConcurrency", options.maxConcurrency, 1)
  integer("hardConcurrency", options.hardConcurrency, 1)
  integer("quota", options.quota, 0)
  positive("requestsPerMinute", options.requestsPerMinute)
  positive("tokensPerMinute", options.tokensPerMinute)
  positive("burstSeconds", options.burstSeconds)
  positive("promptTokensPerSecond", options.promptTokensPerSecond)
  positive("outputTokensPerSecond", options.outputTokensPerSecond)
  positive("timeScale", options.timeScale)
  if (options.baseMillis !== undefined) {
    check(
      "baseMillis",
      "a finite number >= 0",
      options.baseMillis >= 0 && options.baseMillis < Infinity,
      options.baseMillis
    )
  }
  if (options.seed !== undefined) check("seed", "a finite number", Number.isFinite(options.seed), options.seed)
  checkFaults(options.faults ?? {})
}

const checkFaults = (faults: Partial<Faults>): void => {
  for (const [name, share] of Object.entries(faults)) {
    check(`faults.${name}`, "a share from 0 to 1", share !== undefined && share >= 0 && share <= 1, share)
  }
}

const refused = (
  api: Api,
  status: number,
  type: string,
  message: string,
  param?: string
): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.jsonUnsafe(error(api, type, message, param === undefined ? {} : { param }), { status })

const keyOf = (headers: Readonly<Record<string, string | undefined>>): string =>
  headers["x-api-key"] ?? (headers["authorization"] ?? "").replace(/^Bearer /i, "")

const parse = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

const handle = (
  desk: Desk,
  keys: ReadonlyArray<string> | undefined
): Effect.Effect<HttpServerResponse.HttpServerResponse, never, HttpServerRequest.HttpServerRequest | Scope.Scope> =>
  Effect.gen(function* () {
    const request = yield* HttpServerRequest.HttpServerRequest
    const path = request.url.split("?")[0] ?? ""
    const api = apis[path]
    if (api === undefined || request.method !== "POST") {
      return refused(
        path.includes("messages") ? "messages" : "chat",
        404,
        "not_found_error",
        `Unknown request URL: ${request.method} ${path}`
      )
    }
    if (keys !== undefined && !keys.includes(keyOf(request.headers))) {
      return refused(
        api,
        401,
        api === "messages" ? "authentication_error" : "invalid_request_error",
        "Incorrect API key provided"
      )
    }
    const text = yield* Effect.option(Effect.provideService(request.text, HttpIncomingMessage.MaxBodySize, bodyLimit))
    if (text._tag === "None") return refused(api, 413, "request_too_large", "Request exceeds the maximum size of 4 MB")
    const ask = decode(api, parse(text.value))
    desk.requests++
    if ("problem" in ask) return refused(api, 400, "invalid_request_error", ask.problem, ask.param)
    const denied = desk.admission.admit(ask, desk.inFlight, desk.slots, desk.now, desk.wall)
    const client = request.headers["x-request-id"] ?? request.headers["x-client-request-id"]
    if (denied !== undefined) {
      desk.throttledBy[denied.cause]++
      desk.log({
        id: "",
        request: client,
        path,
        status: denied.status,
        inputTokens: 0,
        outputTokens: 0,
        aborted: false
      })
      return HttpServerResponse.jsonUnsafe(denied.body, { status: denied.status, headers: denied.headers })
    }
    const draw = desk.draw(path, text.value)
    const reply: Reply = replyTo(ask, draw, desk.options.reply)
    const answer: Answer = { id: desk.newId(api, draw), createdSeconds: Math.floor(desk.wall / 1_000), ask, reply }
    const fault = faultOf(desk.faults, draw)
    const { admission } = desk
    const visit: Visit = { desk, path, request: client, answer, fault, admission, hasLeft: false }
    desk.inFlight++
    desk.peakInFlight = Math.max(desk.peakInFlight, desk.inFlight)
    // The request's own end: also of a stream that nobody began to read.
    yield* Effect.addFinalizer(() => abandoned(visit))
    return yield* ask.stream ? streamed(visit) : whole(visit)
  })

/**
 * Starts a server that listens until the scope closes.
 *
 * **Errors** `ListenError` for a port that is in use; a `RangeError` that names the option and the value.
 *
 * **Example** (A provider that takes sixty requests a minute)
 *
 * ```ts
 * import { Effect } from "effect"
 * import * as ModelServer from "espalier/testing/ModelServer"
 *
 * const program = Effect.gen(function* () {
 *   const server = yield* ModelServer.make({ requestsPerMinute: 60, burstSeconds: 1, timeScale: 100 })
 *   const ask = () =>
 *     fetch(`${server.url}/v1/chat/completions`, {
 *       method: "POST",
 *       body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "hello" }], max_tokens: 50 })
 *     })
 *   const first = yield* Effect.promise(ask)
 *   const second = yield* Effect.promise(ask)
 *   console.log(first.status, second.status, second.headers.get("retry-after")) // => 200 429 1
 * })
 * await Effect.runPromise(Effect.scoped(program))
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const make: (options?: Options) => Effect.Effect<ModelServer["Service"], ListenError, Scope.Scope> =
  Effect.fnUntraced(function* (options: Options = {}) {
    checkOptions(options)
    const host = options.host ?? "127.0.0.1"
    const port = options.port ?? 0
    const clock = yield* Clock.Clock
    const desk = new Desk(options, clock)
    const url = yield* serve(host, port, handle(desk, options.keys))
    return ModelServer.of({
      url,
      stats: Effect.sync(() => desk.stats()),
      log: Effect.sync(() => desk.served.slice(-logKept)),
      counted: (id) => Effect.sync(() => desk.served.findLast((entry) => entry.id === id || entry.request === id)),
      setFaults: (faults) =>
        Effect.sync(() => {
          checkFaults(faults)
          desk.setFaults(faults)
        }),
      brownout: ({ slots, errors, duration }) =>
        Effect.sync(() => {
          check("brownout.slots", "a share above 0 and at most 1", slots > 0 && slots <= 1, slots)
          checkFaults({ error: errors })
          const millis = Duration.toMillis(Duration.fromInputUnsafe(duration))
          desk.brownOut({ slots, errors, untilMillis: desk.now + millis })
        }),
      reset: Effect.sync(() => desk.reset())
    })
  })

/**
 * A server that lives as long as the layer.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options: Options = {}): Layer.Layer<ModelServer, ListenError> =>
  Layer.effect(ModelServer, make(options))
