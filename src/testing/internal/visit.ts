/**
 * One call that was let in: the wait, the answer in one piece or as a stream, and what it is counted as, on every exit.
 *
 * @internal
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Sse from "effect/encoding/Sse"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Stream from "effect/Stream"
import type { Api, Ask } from "./ask.ts"
import type { Admission } from "./admission.ts"
import type { Desk, Faults } from "./desk.ts"
import { type Answer, body, error, errorFrame, type Frame, frames } from "./shapes.ts"

/** A wait is cut in so many slices, so that a call notices when others come and go. */
const slices = 8

/** Waits as long as `millis` of work takes under the load of each moment. */
const work = (desk: Desk, millis: number): Effect.Effect<void> => {
  const scale = desk.options.timeScale ?? 1
  const slice = Effect.suspend(() => Effect.sleep(Duration.millis((millis / slices / scale) * desk.slowdown)))
  return Effect.repeat(slice, { times: slices - 1 })
}

export interface Visit {
  readonly desk: Desk
  readonly path: string
  readonly request: string | undefined
  readonly answer: Answer
  readonly fault: Fault
  /** The meters that let it in; a reset gives the desk new ones, which owe it nothing. */
  readonly admission: Admission
  hasLeft: boolean
}

/** What goes wrong with one call; at most one thing does. */
export type Fault = keyof Faults | undefined

/** Each fault has its own share of the draw, so that the shares are what they say as long as they add up to at most 1. */
export const faultOf = (faults: Faults, draw: () => number): Fault => {
  let left = draw()
  for (const fault of ["error", "hang", "malformed", "cut", "errorInStream"] as const) {
    if (left < faults[fault]) return fault
    left -= faults[fault]
  }
  return undefined
}

type End = "ok" | "failed" | "aborted"

/** Counts what a visit was served and gives its slot back, once, whoever comes first. */
const leave = (visit: Visit, outputTokens: number, end: End, status: number): Effect.Effect<void> =>
  Effect.sync(() => {
    const { desk, answer, path, request } = visit
    if (visit.hasLeft) return
    visit.hasLeft = true
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
    desk[end]++
    visit.admission.settle(answer.ask, input + output, desk.now)
    const aborted = end === "aborted"
    desk.log({ id: answer.id, request, path, status, inputTokens: input, outputTokens: output, aborted })
  })

/** A client that goes away before its answer has begun leaves through here. */
export const abandoned = (visit: Visit): Effect.Effect<void> => leave(visit, 0, "aborted", 499)

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
export const whole = (visit: Visit): Effect.Effect<HttpServerResponse.HttpServerResponse> => {
  const { desk, answer, fault } = visit
  const { ask, reply, id } = answer
  const fails = fault === "error"
  const served = Effect.gen(function* () {
    if (fault === "hang") return yield* Effect.never
    yield* work(desk, millisBefore(desk, ask) + (fails ? 0 : millisFor(desk, reply.outputTokens)))
    if (fails) return serverError(ask.api)
    const text = JSON.stringify(body(answer))
    const headers = { ...headersOf(desk, ask.api, id), "content-type": "application/json" }
    if (fault === "malformed") return HttpServerResponse.text(text.slice(0, text.length >> 1), { headers })
    if (fault === "cut") {
      const half = Stream.make(encoder.encode(text.slice(0, text.length >> 1)))
      return HttpServerResponse.stream(Stream.concat(half, Stream.fail("cut")), { headers })
    }
    return HttpServerResponse.text(text, { headers })
  })
  return Effect.onExit(served, (exit) =>
    Exit.isSuccess(exit)
      ? leave(visit, reply.outputTokens, fails || fault === "cut" ? "failed" : "ok", exit.value.status)
      : abandoned(visit)
  )
}

const encoder = new TextEncoder()
const write = ({ event, data }: Frame): Uint8Array =>
  encoder.encode(Sse.encoder.write({ _tag: "Event", event: event ?? "message", id: undefined, data }))

/** The answer as a stream; a client that goes away has been served what was sent so far. */
export const streamed = (visit: Visit): Effect.Effect<HttpServerResponse.HttpServerResponse> => {
  const { desk, answer, fault } = visit
  const { ask, reply, id } = answer
  const all = frames(answer)
  const breaksAt = fault === "cut" || fault === "errorInStream" ? Math.floor(all.length / 2) : Infinity
  let sent = 0
  const next = Effect.fnUntraced(function* ([index, frame]: readonly [number, Frame]) {
    if (index >= breaksAt) return yield* Effect.fail(fault)
    const fresh = frame.tokens - sent
    if (fresh > 0) {
      const millis = millisFor(desk, fresh) / (desk.options.timeScale ?? 1)
      yield* Effect.sleep(Duration.millis(millis * desk.slowdown))
    }
    sent = Math.max(sent, frame.tokens)
    return write(frame)
  })
  return Effect.gen(function* () {
    yield* fault === "hang" ? Effect.never : work(desk, millisBefore(desk, ask))
    if (fault === "error") {
      yield* leave(visit, 0, "failed", 500)
      return serverError(ask.api)
    }
    const pieces = Stream.fromIterable(all.entries()).pipe(
      Stream.mapEffect(next),
      Stream.catchIf(
        (reason) => reason === "errorInStream",
        () => Stream.make(write(errorFrame(ask.api)))
      ),
      Stream.onExit((exit) =>
        breaksAt < Infinity && sent >= (all[breaksAt - 1]?.tokens ?? 0)
          ? leave(visit, sent, "failed", 200)
          : Exit.isSuccess(exit)
            ? leave(visit, reply.outputTokens, "ok", 200)
            : leave(visit, sent, "aborted", 200)
      )
    )
    return HttpServerResponse.stream(pieces, {
      headers: { ...headersOf(desk, ask.api, id), "cache-control": "no-cache" },
      contentType: "text/event-stream"
    })
  }).pipe(Effect.onInterrupt(() => abandoned(visit)))
}
