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
export const whole = (visit: Visit): Effect.Effect<HttpServerResponse.HttpServerResponse> => {
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
export const streamed = (visit: Visit): Effect.Effect<HttpServerResponse.HttpServerResponse> => {
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
