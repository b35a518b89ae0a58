/**
 * What the machinery learns from the exit of a call: how the downstream is doing, and nothing else.
 *
 * A breaker and a limit must not learn from an exit that says nothing about health. Circuit breakers that count user
 * aborts or their own refusals as failures open on a healthy provider; limits that take a fast 429 for a fast answer
 * grow when they should shrink. So there are four values and not two (Netflix's limiter and Effect's circuit breaker
 * have three).
 *
 * @stability experimental
 * @since 0.1.0
 */
import type * as Duration from "effect/Duration"
import * as Cause from "effect/Cause"
import * as Exit from "effect/Exit"

/**
 * - `Success`: it answered.
 * - `Failure`: it is unwell: a server error, a lost connection, our own time-out.
 * - `Throttled`: it is well and asks for less: 429, 529, overloaded. Pauses the gate, never opens the breaker.
 * - `Ignored`: says nothing: a caller's error (4xx), an interruption, a refusal of our own.
 *
 * @category models
 * @since 0.1.0
 */
export type Outcome =
  | { readonly _tag: "Success" }
  | { readonly _tag: "Failure" }
  | { readonly _tag: "Throttled"; readonly retryAfter: Duration.Input | undefined }
  | { readonly _tag: "Ignored" }

/**
 * It answered.
 *
 * @category constructors
 * @since 0.1.0
 */
export const success: Outcome = { _tag: "Success" }

/**
 * It is unwell.
 *
 * @category constructors
 * @since 0.1.0
 */
export const failure: Outcome = { _tag: "Failure" }

/**
 * The exit says nothing about the downstream's health.
 *
 * @category constructors
 * @since 0.1.0
 */
export const ignored: Outcome = { _tag: "Ignored" }

/**
 * It asks for less; `retryAfter` is what it said of when to come back, if it said so.
 *
 * @category constructors
 * @since 0.1.0
 */
export const throttled = (retryAfter?: Duration.Input): Outcome => ({ _tag: "Throttled", retryAfter })

const tags = new Set(["Success", "Failure", "Throttled", "Ignored"])

/**
 * Learns from an exit without knowing the protocol: success is `Success`, interruption and our own refusals
 * (`Rejected`) are `Ignored`. An error that knows what it means says so with an `outcome` of its own, as those of
 * `Fault` do; any other is `Failure`.
 *
 * @category constructors
 * @since 0.1.0
 */
export const fromExit = (exit: Exit.Exit<unknown, unknown>): Outcome => {
  if (Exit.isSuccess(exit)) return success
  if (Cause.hasInterruptsOnly(exit.cause)) return ignored
  const error = Cause.findErrorOption(exit.cause)
  if (error._tag === "None" || typeof error.value !== "object" || error.value === null) return failure
  const { _tag, outcome } = error.value as { readonly _tag?: unknown; readonly outcome?: Outcome }
  if (_tag === "Rejected") return ignored
  return typeof outcome === "object" && outcome !== null && tags.has(outcome._tag) ? outcome : failure
}
