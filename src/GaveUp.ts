/**
 * The third door: the work did run, and its supervision gave up on it.
 *
 * Neither a refusal (`Rejected`, it never ran) nor the work's own error (which passes untouched): time ran out, restarts
 * or retries ran out, or the result did not pass its check.
 *
 * @stability experimental
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

/**
 * Why it was given up.
 *
 * - `TimedOut`: a call took longer than its own time-out.
 * - `Expired`: the node's deadline passed before it had ended.
 * - `RestartIntensityExceeded`: failed more often than its supervisor restarts.
 * - `RetriesExhausted`: failed, and the owner or the fleet's retry budget allowed no further attempt.
 * - `Unverified`: the result did not pass its check.
 * - `Stopped`: a rival, a person or a shutdown stopped it; `why` says which.
 *
 * @category models
 * @since 0.1.0
 */
export const Reason = Schema.Union([
  Schema.TaggedStruct("TimedOut", { dependency: Schema.String, afterMillis: Schema.Finite }),
  Schema.TaggedStruct("Expired", { agent: Schema.String }),
  Schema.TaggedStruct("RestartIntensityExceeded", {
    agent: Schema.String,
    restarts: Schema.Finite,
    periodMillis: Schema.Finite
  }),
  Schema.TaggedStruct("RetriesExhausted", { agent: Schema.String, attempts: Schema.Finite }),
  Schema.TaggedStruct("Unverified", { agent: Schema.String }),
  Schema.TaggedStruct("Stopped", { agent: Schema.String, why: Schema.String })
])

/**
 * Why it was given up.
 *
 * @category models
 * @since 0.1.0
 */
export type Reason = typeof Reason.Type

/**
 * The error of work that was given up; `lastCause` is the last failure, where there was one. It is a live value and is
 * left out of the encoded form.
 *
 * @category errors
 * @since 0.1.0
 */
export class GaveUp extends Schema.TaggedError<GaveUp>()("GaveUp", { reason: Reason }) {
  lastCause: unknown = undefined

  override get message(): string {
    const reason = this.reason
    switch (reason._tag) {
      case "TimedOut":
        return `TimedOut: a call to ${reason.dependency} took longer than ${reason.afterMillis} ms`
      case "Expired":
        return `Expired: the deadline of ${reason.agent} passed before it had ended`
      case "RestartIntensityExceeded":
        return `RestartIntensityExceeded: ${reason.agent} failed again after ${reason.restarts} restarts in ${reason.periodMillis} ms`
      case "RetriesExhausted":
        return `RetriesExhausted: ${reason.agent} failed ${reason.attempts} times and may not be run again`
      case "Unverified":
        return `Unverified: the result of ${reason.agent} did not pass its check`
      case "Stopped":
        return `Stopped: ${reason.agent}: ${reason.why}`
    }
  }
}

/**
 * Makes the error, with the last failure where there was one. No stack is captured.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (reason: Reason, lastCause?: unknown): GaveUp => {
  const limit = Error.stackTraceLimit
  Error.stackTraceLimit = 0
  try {
    const error = new GaveUp({ reason })
    if (lastCause !== undefined) Object.defineProperty(error, "lastCause", { value: lastCause, enumerable: false })
    return error
  } finally {
    Error.stackTraceLimit = limit
  }
}

/**
 * Whether a value is this error.
 *
 * @category predicates
 * @since 0.1.0
 */
export const isGaveUp = (value: unknown): value is GaveUp => value instanceof GaveUp
