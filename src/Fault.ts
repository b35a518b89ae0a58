/**
 * What went wrong downstream, as a typed error, decided once at the edge.
 *
 * A status code alone does not say what to do: 429 may mean "in two seconds" or "your money is gone", 503 may be an
 * overload or a crash. Read once, where the answer is still at hand, a fault becomes one of a few errors that each know
 * what they mean for the machinery (`outcome`) and for whoever owns retries (`isRetryable`). Nobody above parses text.
 *
 * The ready-made readers know OpenAI's and Anthropic's bodies and plain HTTP. Messages hold codes, never bodies.
 *
 * Units: `retryAfterMillis` is milliseconds, at most an hour.
 *
 * @stability experimental
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import * as RetryAfter from "./internal/retryAfter.ts"
import * as Outcome from "./Outcome.ts"

const fields = {
  dependency: Schema.String,
  status: Schema.Int,
  code: Schema.optionalKey(Schema.String)
}
const described = (what: string, error: { dependency: string; status: number; code?: string }): string =>
  `${error.dependency} ${what} (${error.status}${error.code === undefined ? "" : ` ${error.code}`})`

/**
 * It is well and asks for less: 429, 529, overloaded. The gate waits and calls again; nobody else retries it.
 *
 * @category errors
 * @since 0.1.0
 */
export class ModelOverloaded extends Schema.TaggedError<ModelOverloaded>()("ModelOverloaded", {
  ...fields,
  retryAfterMillis: Schema.optionalKey(Schema.Finite)
}) {
  override get message(): string {
    return described("asks for less", this)
  }
  get outcome(): Outcome.Outcome {
    return Outcome.throttled(this.retryAfterMillis)
  }
  get isRetryable(): boolean {
    return false
  }
}

/**
 * It failed in a way that may not come again: 5xx, a lost connection, a broken answer.
 *
 * @category errors
 * @since 0.1.0
 */
export class ToolFlaky extends Schema.TaggedError<ToolFlaky>()("ToolFlaky", {
  ...fields,
  retryAfterMillis: Schema.optionalKey(Schema.Finite)
}) {
  override get message(): string {
    return described("failed", this)
  }
  get outcome(): Outcome.Outcome {
    return Outcome.failure
  }
  get isRetryable(): boolean {
    return true
  }
}

/**
 * The account's quota or spending limit is used up; waiting does not help, so it is never retried.
 *
 * @category errors
 * @since 0.1.0
 */
export class QuotaExhausted extends Schema.TaggedError<QuotaExhausted>()("QuotaExhausted", fields) {
  override get message(): string {
    return described("has no quota left", this)
  }
  get outcome(): Outcome.Outcome {
    return Outcome.ignored
  }
  get isRetryable(): boolean {
    return false
  }
}

/**
 * The request itself is wrong: 4xx other than a throttle. Says nothing about the dependency's health.
 *
 * @category errors
 * @since 0.1.0
 */
export class BadRequest extends Schema.TaggedError<BadRequest>()("BadRequest", fields) {
  override get message(): string {
    return described("refused the request", this)
  }
  get outcome(): Outcome.Outcome {
    return Outcome.ignored
  }
  get isRetryable(): boolean {
    return false
  }
}

/**
 * The key is missing, wrong or not allowed: 401, 403. Kept apart from other bad requests, because a person must act.
 *
 * @category errors
 * @since 0.1.0
 */
export class Unauthorized extends Schema.TaggedError<Unauthorized>()("Unauthorized", fields) {
  override get message(): string {
    return described("does not accept the key", this)
  }
  get outcome(): Outcome.Outcome {
    return Outcome.ignored
  }
  get isRetryable(): boolean {
    return false
  }
}

/**
 * What went wrong downstream.
 *
 * @category models
 * @since 0.1.0
 */
export type Fault = ModelOverloaded | ToolFlaky | QuotaExhausted | BadRequest | Unauthorized

/**
 * An answer that is not a success: its status, its headers, its parsed body if there was one, and the wall clock for
 * dates in headers.
 *
 * @category models
 * @since 0.1.0
 */
export interface Answer {
  readonly dependency: string
  readonly status: number
  readonly header: (name: string) => string | undefined
  readonly body?: unknown
  readonly nowWallMillis: number
}

const at = (value: unknown, key: string): unknown =>
  typeof value === "object" && value !== null ? (value as Readonly<Record<string, unknown>>)[key] : undefined

/** A code is a short word; anything longer may be somebody's text. */
const word = (value: unknown): string | undefined =>
  typeof value === "string" && /^[a-z0-9_.-]{1,64}$/i.test(value) ? value : undefined

const classify = (answer: Answer, code: string | undefined, isQuota: boolean, isOverload: boolean): Fault => {
  const { dependency, status } = answer
  const common = { dependency, status, ...(code === undefined ? {} : { code }) }
  const { waitMillis, shouldRetry } = RetryAfter.parse(answer.header, answer.nowWallMillis)
  const waiting = { ...common, ...(waitMillis === undefined ? {} : { retryAfterMillis: waitMillis }) }
  if (isQuota) return new QuotaExhausted(common)
  if (status === 429 || status === 529 || isOverload) return new ModelOverloaded(waiting)
  if (status === 401 || status === 403) return new Unauthorized(common)
  if (status >= 500 || status === 408 || status === 409 || status === 0) {
    // A 503 that says when to come back is an overload that forgot its number.
    if (status === 503 && waitMillis !== undefined) return new ModelOverloaded(waiting)
    return shouldRetry === false ? new BadRequest(common) : new ToolFlaky(waiting)
  }
  return new BadRequest(common)
}

/**
 * Reads an answer of plain HTTP.
 *
 * **Example** (A throttle with its wait)
 *
 * ```ts
 * import * as Fault from "espalier/Fault"
 *
 * const fault = Fault.http({
 *   dependency: "crm",
 *   status: 429,
 *   header: (name) => (name === "retry-after" ? "2" : undefined),
 *   nowWallMillis: 0
 * })
 * console.log(fault._tag, fault.message) // => ModelOverloaded crm asks for less (429)
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const http = (answer: Answer): Fault => classify(answer, undefined, false, false)

/**
 * Reads an answer of OpenAI: `insufficient_quota` and billing limits are `QuotaExhausted`, whatever their status.
 *
 * @category constructors
 * @since 0.1.0
 */
export const openAi = (answer: Answer): Fault => {
  const error = at(answer.body, "error")
  const code = word(at(error, "code")) ?? word(at(error, "type"))
  const isQuota = code === "insufficient_quota" || code === "billing_hard_limit_reached"
  return classify(answer, code, isQuota, answer.status === 503 && code !== undefined && /overload|slow_down/.test(code))
}

/**
 * Reads an answer of Anthropic: `overloaded_error` is an overload also inside a stream, a spending limit is
 * `QuotaExhausted`.
 *
 * @category constructors
 * @since 0.1.0
 */
export const anthropic = (answer: Answer): Fault => {
  const code = word(at(at(answer.body, "error"), "type"))
  return classify(answer, code, code === "billing_error", code === "overloaded_error" || code === "rate_limit_error")
}

/**
 * A connection that could not be made or was lost.
 *
 * @category constructors
 * @since 0.1.0
 */
export const disconnected = (dependency: string): Fault =>
  new ToolFlaky({ dependency, status: 0, code: "disconnected" })
