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
import * as Exit from "effect/Exit"
import * as Sse from "effect/encoding/Sse"
import * as HttpIncomingMessage from "effect/http/HttpIncomingMessage"
import * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { Admission, type Cause, type Limits } from "./model/admission.ts"
import { type Api, type Ask, decode } from "./model/ask.ts"
import { type Reply, replyTo } from "./model/reply.ts"
import { draws } from "./model/seeded.ts"
import { type ListenError, serve } from "./Listen.ts"
import { type Answer, body, error, errorFrame, type Frame, frames } from "./model/shapes.ts"

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
export interface Faults {
  readonly error: number
  readonly malformed: number
  readonly cut: number
  readonly errorInStream: number
  readonly hang: number
}

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
export interface Options {
  readonly host?: string
  readonly port?: number
  readonly seed?: number
  readonly maxConcurrency?: number
  readonly hardConcurrency?: number
  readonly requestsPerMinute?: number
  readonly tokensPerMinute?: number
  readonly burstSeconds?: number
  readonly quota?: number
  readonly baseMillis?: number
  readonly promptTokensPerSecond?: number
  readonly outputTokensPerSecond?: number
  readonly timeScale?: number
  readonly faults?: Partial<Faults>
  readonly keys?: ReadonlyArray<string>
  readonly reply?: (ask: {
    readonly model: string
    readonly prompt: string
  }) => { readonly text: string } | { readonly json: unknown } | undefined
}

/**
 * What the server has counted since it started or was reset. Tokens are those of answers that were served, in full or in
 * part; `inFlight` and `peakInFlight` count calls that were let in.
 *
 * @category models
 * @since 0.1.0
 */
export interface Stats {
  readonly requests: number
  readonly ok: number
  readonly throttled: number
  readonly throttledBy: { readonly [C in Cause]: number }
  readonly failed: number
  readonly aborted: number
  readonly inputTokens: number
  readonly outputTokens: number
  readonly cachedTokens: number
  readonly reasoningTokens: number
  readonly totalTokens: number
  readonly inFlight: number
  readonly peakInFlight: number
}

/**
 * One request in the server's log; `request` is the client's `x-request-id`, where it sent one.
 *
 * @category models
 * @since 0.1.0
 */
export interface Served {
  readonly id: string
  readonly request: string | undefined
  readonly path: string
  readonly status: number
  readonly inputTokens: number
  readonly outputTokens: number
  readonly aborted: boolean
}

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
const logKept = 10_000
/** A wait is cut in so many slices, so that a call notices when others come and go. */
const slices = 8

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

const noFaults: Faults = { error: 0, malformed: 0, cut: 0, errorInStream: 0, hang: 0 }
const noneThrottled = (): Record<Cause, number> => ({ requests: 0, tokens: 0, concurrency: 0, quota: 0, overloaded: 0 })

/** Everything that changes while the server runs. */
class Desk {
  readonly options: Options
  readonly limits: Limits
  readonly clock: Clock.Clock
  admission: Admission
  faults: Faults
  slotsShare = 1
  inFlight = 0
  peakInFlight = 0
  requests = 0
  ok = 0
  failed = 0
  aborted = 0
  input = 0
  output = 0
  cached = 0
  reasoning = 0
  throttledBy = noneThrottled()
  served: Array<Served> = []
  readonly #seen = new Map<string, number>()
  #nextId = 0

  constructor(options: Options, clock: Clock.Clock) {
    this.options = options
    this.clock = clock
    this.limits = {
      maxConcurrency: options.maxConcurrency ?? 64,
      hardConcurrency: options.hardConcurrency,
      requestsPerMinute: options.requestsPerMinute,
      tokensPerMinute: options.tokensPerMinute,
      burstSeconds: options.burstSeconds ?? 5,
      quota: options.quota
    }
    this.faults = { ...noFaults, ...options.faults }
    this.admission = new Admission(this.limits, this.now)
  }

  get now(): number {
    return Number(this.clock.monotonicTimeNanosUnsafe()) / 1_000_000
  }
  get wall(): number {
    return this.clock.currentTimeMillisUnsafe()
  }

  reset(): void {
    this.admission = new Admission(this.limits, this.now)
    this.requests = this.ok = this.failed = this.aborted = 0
    this.input = this.output = this.cached = this.reasoning = 0
    this.peakInFlight = this.inFlight
    this.throttledBy = noneThrottled()
    this.served = []
    this.#seen.clear()
  }

  /** The draws of a request: of the seed, its body, and how often that body came before. */
  draw(path: string, text: string): () => number {
    const key = `${path}\n${text}`
    const seen = this.#seen.get(key) ?? 0
    if (this.#seen.size < 100_000 || seen > 0) this.#seen.set(key, seen + 1)
    return draws(`${this.options.seed ?? 0}\n${seen}\n${key}`)
  }

  newId(api: Api, draw: () => number): string {
    const tail = Array.from({ length: 24 }, () => Math.floor(draw() * 36).toString(36)).join("")
    const prefix = api === "chat" ? "chatcmpl-" : api === "responses" ? "resp_" : "msg_"
    return `${prefix}${(this.#nextId++).toString(36)}${tail}`
  }

  log(entry: Served): void {
    this.served.push(entry)
    if (this.served.length > 2 * logKept) this.served = this.served.slice(-logKept)
  }

  /** How many times slower than alone: calls share what the slots can do, and too many cost something besides. */
  get slowdown(): number {
    const slots = this.limits.maxConcurrency * this.slotsShare
    const load = this.inFlight / slots
    return load <= 1 ? 1 : load * (1 + 0.25 * (load - 1))
  }

  stats(): Stats {
    return {
      requests: this.requests,
      ok: this.ok,
      throttled: Object.values(this.throttledBy).reduce((sum, count) => sum + count, 0),
      throttledBy: { ...this.throttledBy },
      failed: this.failed,
      aborted: this.aborted,
      inputTokens: this.input,
      outputTokens: this.output,
      cachedTokens: this.cached,
      reasoningTokens: this.reasoning,
      totalTokens: this.input + this.output,
      inFlight: this.inFlight,
      peakInFlight: this.peakInFlight
    }
  }
}

/** Waits as long as `millis` of work takes under the load of each moment. */
const work = (desk: Desk, millis: number): Effect.Effect<void> => {
  const scale = desk.options.timeScale ?? 1
  const slice = Effect.suspend(() => Effect.sleep(Duration.millis((millis / slices / scale) * desk.slowdown)))
  return Effect.repeat(slice, { times: slices - 1 })
}

interface Visit {
  readonly desk: Desk
  readonly path: string
  readonly request: string | undefined
  readonly answer: Answer
  readonly faults: Faults
  readonly draw: () => number
}

/** Counts what a visit was served and gives its slot back, once. */
const leave = (visit: Visit, outputTokens: number, aborted: boolean, status: number): Effect.Effect<void> =>
  Effect.sync(() => {
    const { desk, answer, path, request } = visit
    const { promptTokens } = answer.ask
    const served = status < 500
    const output = served ? outputTokens : 0
    const input = served ? promptTokens : 0
    desk.inFlight--
    desk.input += input
    desk.output += output
    if (served) {
      desk.cached += answer.reply.cachedTokens
      desk.reasoning += Math.min(output, answer.reply.reasoningTokens)
    }
    if (aborted) desk.aborted++
    else if (served) desk.ok++
    else desk.failed++
    desk.admission.settle(answer.ask, input + output, desk.now)
    desk.log({ id: answer.id, request, path, status, inputTokens: input, outputTokens: output, aborted })
  })

const headersOf = (desk: Desk, api: Api, id: string): Record<string, string> => ({
  ...desk.admission.headers(api, desk.now, desk.wall),
  [api === "messages" ? "request-id" : "x-request-id"]: id
})

const millisBefore = (desk: Desk, { promptTokens }: Ask): number =>
  (desk.options.baseMillis ?? 300) + (promptTokens * 1_000) / (desk.options.promptTokensPerSecond ?? 10_000)
const millisFor = (desk: Desk, outputTokens: number): number =>
  (outputTokens * 1_000) / (desk.options.outputTokensPerSecond ?? 80)

const serverError = (api: Api): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.jsonUnsafe(
    api === "messages"
      ? error(api, "api_error", "Internal server error")
      : error(api, "server_error", "The server had an error while processing your request", { code: "server_error" }),
    { status: 500 }
  )

/** The answer in one piece. A client that goes away has been served nothing but has used its prompt. */
const whole = (visit: Visit): Effect.Effect<HttpServerResponse.HttpServerResponse> => {
  const { desk, answer, faults, draw } = visit
  const { ask, reply, id } = answer
  const fails = draw() < faults.error
  const served = Effect.gen(function* () {
    if (draw() < faults.hang) return yield* Effect.never
    yield* work(desk, millisBefore(desk, ask) + (fails ? 0 : millisFor(desk, reply.outputTokens)))
    if (fails) return serverError(ask.api)
    const text = JSON.stringify(body(answer))
    const headers = { ...headersOf(desk, ask.api, id), "content-type": "application/json" }
    if (draw() < faults.malformed) return HttpServerResponse.text(text.slice(0, text.length >> 1), { headers })
    if (draw() < faults.cut) {
      const half = Stream.make(encoder.encode(text.slice(0, text.length >> 1)))
      return HttpServerResponse.stream(Stream.concat(half, Stream.fail("cut")), { headers })
    }
    return HttpServerResponse.text(text, { headers })
  })
  return Effect.onExit(served, (exit) =>
    Exit.isSuccess(exit) ? leave(visit, reply.outputTokens, false, exit.value.status) : leave(visit, 0, true, 499)
  )
}

const encoder = new TextEncoder()
const write = ({ event, data }: Frame): Uint8Array =>
  encoder.encode(Sse.encoder.write({ _tag: "Event", event: event ?? "message", id: undefined, data }))

/** The answer as a stream; a client that goes away has been served what was sent so far. */
const streamed = (visit: Visit): Effect.Effect<HttpServerResponse.HttpServerResponse> => {
  const { desk, answer, faults, draw } = visit
  const { ask, reply, id } = answer
  const all = frames(answer)
  const breaksAt = draw() < faults.cut || draw() < faults.errorInStream ? Math.floor(all.length / 2) : Infinity
  const withError = breaksAt < Infinity && draw() < faults.errorInStream
  const hangs = draw() < faults.hang
  const fails = draw() < faults.error
  let sent = 0
  return Effect.uninterruptibleMask((restore) =>
    Effect.gen(function* () {
      yield* restore(hangs ? Effect.never : work(desk, millisBefore(desk, ask)))
      if (fails) {
        yield* leave(visit, 0, false, 500)
        return serverError(ask.api)
      }
      const pieces = Stream.fromIterable(all.entries()).pipe(
        Stream.mapEffect(([index, frame]) =>
          Effect.gen(function* () {
            if (index >= breaksAt) return yield* Effect.fail(withError ? "error" : "cut")
            const fresh = frame.tokens - sent
            if (fresh > 0)
              yield* Effect.sleep(
                Duration.millis((millisFor(desk, fresh) / (desk.options.timeScale ?? 1)) * desk.slowdown)
              )
            sent = Math.max(sent, frame.tokens)
            return write(frame)
          })
        ),
        Stream.catchIf(
          (reason) => reason === "error",
          () => Stream.make(write(errorFrame(ask.api)))
        ),
        Stream.onExit((exit) =>
          leave(
            visit,
            Exit.isSuccess(exit) && breaksAt === Infinity ? reply.outputTokens : sent,
            Exit.isFailure(exit),
            200
          )
        )
      )
      return HttpServerResponse.stream(pieces, {
        headers: { ...headersOf(desk, ask.api, id), "cache-control": "no-cache" },
        contentType: "text/event-stream"
      })
    }).pipe(Effect.onInterrupt(() => leave(visit, 0, true, 499)))
  )
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
  desk: Desk
): Effect.Effect<HttpServerResponse.HttpServerResponse, never, HttpServerRequest.HttpServerRequest> =>
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
    const { keys } = desk.options
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
    const denied = desk.admission.admit(ask, desk.inFlight, desk.now, desk.wall)
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
    const visit: Visit = { desk, path, request: client, answer, faults: desk.faults, draw }
    desk.inFlight++
    desk.peakInFlight = Math.max(desk.peakInFlight, desk.inFlight)
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
    const url = yield* serve(host, port, handle(desk))
    return ModelServer.of({
      url,
      stats: Effect.sync(() => desk.stats()),
      log: Effect.sync(() => desk.served.slice(-logKept)),
      counted: (id) => Effect.sync(() => desk.served.findLast((entry) => entry.id === id || entry.request === id)),
      setFaults: (faults) =>
        Effect.sync(() => {
          checkFaults(faults)
          desk.faults = { ...desk.faults, ...faults }
        }),
      brownout: ({ slots, errors, duration }) =>
        Effect.suspend(() => {
          check("brownout.slots", "a share above 0 and at most 1", slots > 0 && slots <= 1, slots)
          checkFaults({ error: errors })
          const before = desk.faults
          desk.slotsShare = slots
          desk.faults = { ...before, error: errors }
          const over = Effect.sync(() => {
            desk.slotsShare = 1
            desk.faults = before
          })
          return Effect.asVoid(Effect.forkDetach(Effect.andThen(Effect.sleep(duration), over)))
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
