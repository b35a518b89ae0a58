/**
 * An account in the tree's ledger: tokens and money that are held before they are spent.
 *
 * Charging after a call lets calls side by side all pass the same check; reserving an estimate overshoots in every run.
 * Holding an upper bound first and giving the rest back after is what payment cards do, and never overshoots. A node's
 * account is a grant carved out of its parent's when it starts, and what is left goes back when it ends.
 *
 * Sits after the envelope's own checks and before the breaker in a governed call, which holds and settles by itself;
 * the functions here are for spending that is not a call to a dependency, and for asking what is left. Never waits.
 *
 * Units: whole tokens and whole micro-dollars. Unlimited is an absent unit, 0 is nothing.
 *
 * **Errors** `Rejected` with `BudgetExceeded` (names the tightest account) or `Unpriced`.
 *
 * @stability experimental
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { nowUnsafe } from "./Deadline.ts"
import { of } from "./internal/envelope.ts"
import * as holding from "./internal/holding.ts"
import * as Rejected from "./Rejected.ts"
import * as Spend from "./Spend.ts"

/**
 * What the running agent could still hold at this moment; absent units are unlimited. Outside a fleet nothing is.
 *
 * @category getters
 * @since 0.1.0
 */
export const remaining: Effect.Effect<Spend.Spend> = Effect.withFiber((fiber) => {
  const envelope = of(fiber)
  return Effect.succeed(envelope === undefined ? Spend.zero : holding.remaining(envelope))
})

/**
 * Runs an effect under a hold on the running agent's budget and settles it on every exit: success, failure, defect,
 * interruption. `usage` says what it really took; where it says `undefined`, or is absent, the hold is charged.
 *
 * **Errors** a `RangeError` for a bad amount; `Rejected` when it does not fit or there is no envelope.
 *
 * **Example** (Paying for work that is not a call to a dependency)
 *
 * ```ts
 * import { Effect, Schema } from "effect"
 * import * as Agent from "espalier/Agent"
 * import * as Budget from "espalier/Budget"
 * import * as Fleet from "espalier/Fleet"
 *
 * const Embed = Agent.make("Embed", {
 *   input: Schema.String,
 *   output: Schema.Int,
 *   run: (text) => Budget.charge(Effect.succeed(text.length), { hold: { tokens: 100 }, usage: () => ({ tokens: 12 }) })
 * })
 * const program = Fleet.run(Embed, "pear", { tokens: 1_000 }).pipe(Effect.provide(Fleet.layer()))
 * const { report } = await Effect.runPromise(program)
 * console.log(report.subtree.tokens) // => 12
 * ```
 *
 * @category combinators
 * @since 0.1.0
 */
export const charge = <A, E, R>(
  self: Effect.Effect<A, E, R>,
  options: {
    readonly hold: Spend.Spend
    readonly usage?: (exit: Exit.Exit<A, E>) => Spend.Spend | undefined
  }
): Effect.Effect<A, E | Rejected.Rejected, R> => {
  const bound = Spend.make(options.hold, "Budget.charge: hold")
  return Effect.uninterruptibleMask((restore) =>
    Effect.withFiber((fiber): Effect.Effect<A, E | Rejected.Rejected, R> => {
      const envelope = of(fiber)
      if (envelope === undefined) return Effect.fail(Rejected.make({ _tag: "NoEnvelope", dependency: "Budget.charge" }))
      const hold = holding.take(envelope, bound)
      if (Rejected.isRejected(hold)) return Effect.fail(hold)
      const clock = fiber.getRef(Clock.Clock)
      return Effect.onExit(restore(self), (exit) =>
        Effect.sync(() => holding.settle(envelope, hold, usageOf(options.usage, exit), nowUnsafe(clock)))
      )
    })
  )
}

/** A usage that cannot be read, or is no amount, is unknown: the hold is charged. */
const usageOf = <A, E>(
  usage: ((exit: Exit.Exit<A, E>) => Spend.Spend | undefined) | undefined,
  exit: Exit.Exit<A, E>
): Spend.Spend | undefined => {
  try {
    const used = usage?.(exit)
    return used === undefined ? undefined : Spend.make(used, "Budget.charge: usage")
  } catch {
    return undefined
  }
}
