/**
 * Listens on loopback, or says which port is taken and what to do.
 *
 * @stability experimental
 * @since 0.1.0
 */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as HttpServer from "effect/http/HttpServer"
import type * as HttpServerRequest from "effect/http/HttpServerRequest"
import type * as HttpServerResponse from "effect/http/HttpServerResponse"
import type * as Scope from "effect/Scope"
import { createServer } from "node:http"

/**
 * The server could not listen.
 *
 * @category errors
 * @since 0.1.0
 */
export class ListenError extends Data.TaggedError("ListenError")<{
  readonly host: string
  readonly port: number
  readonly code: string
}> {
  override get message(): string {
    return this.code === "EADDRINUSE"
      ? `port ${this.port} on ${this.host} is in use; choose another port, or 0 for a free one`
      : `cannot listen on ${this.host} port ${this.port} (${this.code})`
  }
}

/**
 * Serves an app until the scope closes; the base URL, without a trailing slash. Port 0 takes a free one.
 *
 * @category constructors
 * @since 0.1.0
 */
export const serve = Effect.fnUntraced(function* (
  host: string,
  port: number,
  app: Effect.Effect<HttpServerResponse.HttpServerResponse, never, HttpServerRequest.HttpServerRequest | Scope.Scope>
): Effect.fn.Return<string, ListenError, Scope.Scope> {
  const node = createServer()
  const server = yield* Effect.mapError(
    NodeHttpServer.make(() => node, { host, port, disablePreemptiveShutdown: true }),
    ({ cause }) => new ListenError({ host, port, code: codeOf(cause) })
  )
  // A handler runs uninterruptibly unless it asks for more; a client that goes away is to free its slot at once.
  yield* HttpServer.serveEffect(Effect.interruptible(app)).pipe(Effect.provideService(HttpServer.HttpServer, server))
  // Closing waits for connections, and clients keep theirs open for later: these are ended first.
  yield* Effect.addFinalizer(() => Effect.sync(() => node.closeAllConnections()))
  return HttpServer.formatAddress(server.address)
})

const codeOf = (cause: unknown): string =>
  typeof cause === "object" && cause !== null && "code" in cause && typeof cause.code === "string"
    ? cause.code
    : "unknown"
