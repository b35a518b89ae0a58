/**
 * The terms under which an agent runs: who it is, where in the tree, how much it matters, until when, and whether it
 * may retry. It only ever narrows on the way down.
 *
 * An envelope is a capability. The runtime makes it, hands it down through the context, and asks the class itself
 * whether one is genuine: agent code can read its own and tighten it for a section, and has no way to make a wider one,
 * to raise its priority, or to run a governed call without one. Its budget is carried as an opaque account that only
 * the ledger opens.
 *
 * @stability experimental
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import type * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type { Ancestry } from "./Ancestry.ts"
import * as Deadline from "./Deadline.ts"
import * as internal from "./internal/envelope.ts"
import type { Priority } from "./Priority.ts"

/**
 * The terms of one node. `depth` is 0 at the root; `task` names the tree; `mayRetry` holds only at the layer that owns
 * retries.
 *
 * @category models
 * @since 0.1.0
 */
export interface Envelope {
  readonly id: string
  readonly task: string
  readonly agent: string
  readonly depth: number
  readonly ancestry: Ancestry
  readonly priority: Priority
  readonly deadline: Deadline.Deadline
  readonly mayRetry: boolean
}

/**
 * The envelope of the running fiber; `undefined` outside a fleet.
 *
 * **Gotchas** whatever a program puts here that the runtime did not make counts as none at all.
 *
 * @category services
 * @since 0.1.0
 */
export const CurrentEnvelope: Context.Reference<Envelope | undefined> = internal.CurrentEnvelope as Context.Reference<
  Envelope | undefined
>

/**
 * The envelope that the running fiber is really under; `undefined` outside a fleet.
 *
 * @category getters
 * @since 0.1.0
 */
export const current: Effect.Effect<Envelope | undefined> = Effect.withFiber((fiber) =>
  Effect.succeed(internal.of(fiber))
)

/**
 * Whether the runtime made this value.
 *
 * @category predicates
 * @since 0.1.0
 */
export const isEnvelope = (value: unknown): value is Envelope => internal.Envelope.is(value)

/**
 * Runs a section under an earlier deadline: calls and children in it see the earlier one. A later deadline than the
 * current one changes nothing. Outside a fleet it does nothing.
 *
 * **Gotchas** it narrows what may start; it does not interrupt the section (`Effect.timeout` does).
 *
 * **Errors** a `RangeError` when the duration is not above zero.
 *
 * @category combinators
 * @since 0.1.0
 */
export const within =
  (duration: Duration.Input) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.withFiber((fiber) => {
      const envelope = internal.of(fiber)
      if (envelope === undefined) return self
      const deadline = Deadline.after(Deadline.nowUnsafe(fiber.getRef(Clock.Clock)), duration, "Envelope.within")
      return Effect.provideService(
        self,
        internal.CurrentEnvelope,
        internal.section(envelope, deadline, internal.Envelope.usesReserve(envelope))
      )
    })
