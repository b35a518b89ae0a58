/**
 * Tries again, at the one layer that owns retries, and nowhere else.
 *
 * Three layers that each try three times make 27 attempts out of one failure. Here every tree has one owner: elsewhere
 * this does nothing at all, and a failure goes up at once as the typed error that it is. The owner waits a random time
 * that grows (full jitter, so that callers do not come back together), never less than it was told to, and withdraws
 * from the fleet's retry budget. A retry is paid from the same grant and must fit the same deadline; if its wait does
 * not, the failure is reported now and not then.
 *
 * Throttles are not retried here: they belong to the gate, which puts the call back in line. Refusals (`Rejected`) are
 * tried again only when they say when (`BreakerOpen`).
 *
 * Sits around a call or a piece of an agent's work. Units: Effect durations; `times` counts retries, not attempts.
 *
 * **Errors** the last failure, untouched.
 *
 * Follows the AWS builders' library on time-outs, retries and back-off with jitter.
 *
 * @stability experimental
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"
import * as Random from "effect/Random"
import * as Schedule from "effect/Schedule"
import { nowUnsafe } from "./Deadline.ts"
import * as GaveUp from "./GaveUp.ts"
import * as Attempts from "./internal/attempts.ts"
import { CurrentTry } from "./internal/currentTry.ts"
import { millisOf } from "./internal/duration.ts"
import { Envelope, of } from "./internal/envelope.ts"
import { integer } from "./internal/number.ts"
import * as Rejected from "./Rejected.ts"
import { CurrentRetryBudget } from "./RetryBudget.ts"

/**
 * - `times`: retries after the first attempt; default 3, from 0 to 100.
 * - `base`, `cap`: the first wait is between 0 and `base` (default 200 milliseconds), and doubles up to `cap` (default 10
 *   seconds).
 * - `while`: which failures to try again; default those that say so (`isRetryable`), `GaveUp` with `TimedOut`, and
 *   refusals that say when.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options<E> {
  readonly times?: number
  readonly base?: Duration.Input
  readonly cap?: Duration.Input
  readonly while?: (error: E) => boolean
}

const timedOut = (error: unknown): boolean => GaveUp.isGaveUp(error) && error.reason._tag === "TimedOut"

/** How long an error asks to stay away, in milliseconds; 0 when it does not. */
const askedMillis = (error: unknown): number => {
  if (Rejected.isRejected(error)) return error.retryAfter === undefined ? 0 : Duration.toMillis(error.retryAfter)
  const asked = typeof error === "object" && error !== null && "retryAfterMillis" in error ? error.retryAfterMillis : 0
  return typeof asked === "number" && asked > 0 ? asked : 0
}

/**
 * Whether a failure is worth another attempt by default.
 *
 * @category predicates
 * @since 0.1.0
 */
export const isRetryable = (error: unknown): boolean => {
  if (Rejected.isRejected(error)) return error.reason._tag === "BreakerOpen"
  if (timedOut(error)) return true
  return typeof error === "object" && error !== null && "isRetryable" in error && error.isRetryable === true
}

/**
 * Runs an effect, and runs it again after a failure if this layer owns retries.
 *
 * **Errors** a `RangeError` for an option out of range.
 *
 * **Example** (The root agent owns retries)
 *
 * ```ts
 * import { Effect, Schema } from "effect"
 * import * as Agent from "espalier/Agent"
 * import * as Fault from "espalier/Fault"
 * import * as Fleet from "espalier/Fleet"
 * import * as Retry from "espalier/Retry"
 *
 * let attempts = 0
 * const flaky = Effect.suspend(() =>
 *   ++attempts < 3 ? Effect.fail(Fault.disconnected("crm")) : Effect.succeed("there")
 * )
 * const Root = Agent.make("Root", {
 *   input: Schema.Void,
 *   output: Schema.String,
 *   run: () => Retry.owned(flaky, { base: "1 millis" })
 * })
 * const { output } = await Effect.runPromise(Fleet.run(Root, undefined).pipe(Effect.provide(Fleet.layer())))
 * console.log(output, attempts) // => there 3
 * ```
 *
 * @category combinators
 * @since 0.1.0
 */
export const owned = <A, E, R>(self: Effect.Effect<A, E, R>, options: Options<E> = {}): Effect.Effect<A, E, R> => {
  const policy = policyOf("Retry.owned", options)
  return Effect.withFiber((fiber) => {
    const envelope = of(fiber)
    const below = fiber.getRef(CurrentTry) !== undefined
    return below || (envelope !== undefined && !envelope.mayRetry) ? self : retrying(self, policy, envelope, "work")
  })
}

/**
 * Checked options.
 *
 * @category models
 * @since 0.1.0
 */
export interface Policy<E> {
  readonly times: number
  readonly base: Duration.Duration
  readonly capMillis: number
  readonly while: (error: E) => boolean
}

/**
 * Checks options; `where` names the caller in errors.
 *
 * @category constructors
 * @since 0.1.0
 */
export const policyOf = <E>(where: string, options: Options<E>): Policy<E> => ({
  times: integer(`${where}: times`, options.times ?? 3, 0, 100),
  base: Duration.millis(millisOf(`${where}: base`, options.base ?? "200 millis", false)),
  capMillis: millisOf(`${where}: cap`, options.cap ?? "10 seconds", false),
  while: options.while ?? isRetryable
})

/**
 * Tries again without asking who owns retries; for the owner itself. `layer` names it in the retry tree.
 *
 * @category combinators
 * @since 0.1.0
 */
export const retrying = <A, E, R>(
  self: Effect.Effect<A, E, R>,
  policy: Policy<E>,
  envelope: Envelope | undefined,
  layer: string
): Effect.Effect<A, E, R> =>
  Effect.withFiber((fiber) => {
    if (envelope !== undefined) Attempts.first(Envelope.recorder(envelope).attempts, layer)
    const first = Effect.provideService(self, CurrentTry, firstTry)
    // Most calls succeed: the schedule is made when there is something to try again, and told of the first failure.
    return Effect.catch(first, (error) => {
      if (!policy.while(error)) return Effect.fail(error)
      let told = false
      const again = Effect.suspend(() => {
        if (told) return Effect.provideService(self, CurrentTry, laterTry)
        told = true
        return Effect.fail(error)
      })
      return Effect.retry(again, scheduleOf(policy, envelope, layer, fiber))
    })
  })

const firstTry = { again: false }
const laterTry = { again: true }

/** Waits grow at random up to the cap, never shorter than asked; each is paid for, and fits the deadline. */
const scheduleOf = <E>(
  policy: Policy<E>,
  envelope: Envelope | undefined,
  layer: string,
  fiber: Fiber.Fiber<unknown, unknown>
) => {
  const clock = fiber.getRef(Clock.Clock)
  const budget = fiber.getRef(CurrentRetryBudget)
  return Schedule.exponential(policy.base).pipe(
    Schedule.setInputType<E>(),
    // Before the budget is asked: what is not tried again must not be paid for.
    Schedule.upTo({ times: policy.times }),
    Schedule.modifyDelay(({ duration, input }) =>
      Effect.map(Random.next, (random) => {
        const jittered = random * Math.min(policy.capMillis, Duration.toMillis(duration))
        return Duration.millis(Math.max(jittered, askedMillis(input) * (1.1 + 0.15 * random)))
      })
    ),
    Schedule.while(({ input, duration }) =>
      Effect.sync(() => {
        if (!policy.while(input)) return false
        const now = nowUnsafe(clock)
        if (envelope !== undefined && now + Duration.toMillis(duration) >= envelope.deadline) return false
        if (!budget.withdraw(timedOut(input) ? 2 : 1, now)) return false
        count(envelope, layer)
        return true
      })
    )
  )
}

const count = (envelope: Envelope | undefined, layer: string): void => {
  if (envelope === undefined) return
  const recorder = Envelope.recorder(envelope)
  recorder.retries++
  Attempts.again(recorder.attempts, layer)
}
