/**
 * The instant by which work must have ended. Always an instant, never a duration: waiting counts against it.
 *
 * A duration starts anew at every hop, so that ten hops of 30 seconds take five minutes. An instant is passed down
 * unchanged or made earlier, and each hop sees what is really left. Two deadlines combine to the earlier one, which
 * makes them a semilattice: order and repetition do not matter (Finagle's `Deadline.combined`, gRPC's deadline).
 *
 * Units: milliseconds on Effect's monotonic clock, so that a step of the wall clock neither kills work nor gives it
 * time. `Infinity` is no deadline. An instant is only meaningful inside one process: between processes send what is
 * left ({@link timeLeft}).
 *
 * @stability experimental
 * @since 0.1.0
 */
import type * as Brand from "effect/Brand"
import * as Clock from "effect/Clock"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import { millisOf } from "./internal/duration.ts"

/**
 * An instant on the monotonic clock, in milliseconds.
 *
 * @category models
 * @since 0.1.0
 */
export type Deadline = number & Brand.Brand<"espalier/Deadline">

/**
 * No deadline.
 *
 * @category constructors
 * @since 0.1.0
 */
export const never: Deadline = Infinity as Deadline

/**
 * Reads the monotonic clock, in milliseconds.
 *
 * @category constructors
 * @since 0.1.0
 */
export const nowUnsafe = (clock: Clock.Clock): number => Number(clock.monotonicTimeNanosUnsafe()) / 1_000_000

/**
 * The monotonic instant, in milliseconds.
 *
 * @category constructors
 * @since 0.1.0
 */
export const now: Effect.Effect<number> = Clock.clockWith((clock) => Effect.succeed(nowUnsafe(clock)))

/**
 * Makes a deadline from an instant in milliseconds on the monotonic clock.
 *
 * **Errors** a `RangeError` for NaN or a negative instant.
 *
 * @category constructors
 * @since 0.1.0
 */
export const at = (millis: number): Deadline => {
  if (!(millis >= 0)) throw new RangeError(`Deadline.at: instant must be a number >= 0, got ${String(millis)}`)
  return millis as Deadline
}

/**
 * The deadline that is `duration` from the instant `nowMillis`.
 *
 * **Errors** a `RangeError` when the duration is not above zero: a deadline in the past would only fail later, and
 * further from its cause.
 *
 * **Example** (The earlier one wins)
 *
 * ```ts
 * import * as Deadline from "espalier/Deadline"
 *
 * const task = Deadline.after(0, "10 minutes")
 * const call = Deadline.after(0, "20 seconds")
 * console.log(Deadline.timeLeft(Deadline.earlier(task, call), 5_000)) // => 15000
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const after = (nowMillis: number, duration: Duration.Input, where: string = "Deadline.after"): Deadline => {
  const millis = typeof duration === "number" && duration <= 0 ? 0 : millisOf(`${where}: deadline`, duration)
  if (!(millis > 0)) {
    const given = typeof duration === "number" ? duration : millis
    throw new RangeError(`${where}: deadline must be a duration above zero from now, got ${given} ms (already past)`)
  }
  return (nowMillis + millis) as Deadline
}

/**
 * The earlier of two deadlines.
 *
 * @category combinators
 * @since 0.1.0
 */
export const earlier = (a: Deadline, b: Deadline): Deadline => (a <= b ? a : b)

/**
 * The milliseconds that are left, never below zero; `Infinity` without a deadline.
 *
 * @category getters
 * @since 0.1.0
 */
export const timeLeft = (deadline: Deadline, nowMillis: number): number => Math.max(0, deadline - nowMillis)

/**
 * Whether the instant has come.
 *
 * @category predicates
 * @since 0.1.0
 */
export const isPast = (deadline: Deadline, nowMillis: number): boolean => nowMillis >= deadline
