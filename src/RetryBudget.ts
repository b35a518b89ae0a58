/**
 * Lets a fleet retry only a share of its calls.
 *
 * A maximum number of attempts per call cannot stop a storm: when everything fails, three retries make four times the
 * load, and the factor multiplies at every level of the tree. A budget counts the whole fleet instead. Each first
 * attempt deposits, each retry withdraws, and an empty budget turns the retry into the original failure. A small
 * reserve keeps quiet fleets able to retry at all.
 *
 * Sits between whoever owns retries and the gate. Never waits, never refuses a first attempt. Follows Finagle's
 * `RetryBudget`, with expiring deposits in exact arithmetic.
 *
 * Units: retries; a retry after a time-out costs 2, because the first attempt may still be running downstream. In any
 * `window` that ends with a retry, retries are at most `max(reserve, ratio x first attempts)`.
 *
 * @stability experimental
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import { millisOf } from "./internal/duration.ts"
import * as RetryDeposits from "./internal/retryDeposits.ts"

/**
 * - `ratio`: retries per first attempt, from 0 to 1; default 0.1.
 * - `reserve`: retries in a window even without first attempts; default 3.
 * - `window`: default 60 seconds.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options {
  readonly ratio?: number
  readonly reserve?: number
  readonly window?: Duration.Input
}

/**
 * A retry budget. The methods take the monotonic instant in milliseconds and are synchronous.
 *
 * @category models
 * @since 0.1.0
 */
export interface RetryBudget {
  /** Counts a first attempt. */
  deposit(nowMillis: number): void
  /** Takes `cost` retries, or none and says `false`. */
  withdraw(cost: number, nowMillis: number): boolean
  /** How many retries are left at this moment. */
  balance(nowMillis: number): number
}

/**
 * Makes a budget.
 *
 * **Errors** a `RangeError` for an option out of range.
 *
 * **Example** (Ten retries for a hundred calls, and not one more)
 *
 * ```ts
 * import * as RetryBudget from "espalier/RetryBudget"
 *
 * const budget = RetryBudget.make()
 * for (let call = 0; call < 100; call++) budget.deposit(0)
 * const retries = Array.from({ length: 100 }, () => budget.withdraw(1, 1_000))
 * console.log(retries.filter(Boolean).length) // => 10
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (options: Options = {}): RetryBudget => {
  // A retry comes after its first attempt, so what was earned in the window before it must pay for it.
  const state = RetryDeposits.make({
    carryOver: true,
    ...(options.ratio === undefined ? {} : { ratio: options.ratio }),
    ...(options.reserve === undefined ? {} : { reserve: options.reserve }),
    ...(options.window === undefined
      ? {}
      : { windowMillis: millisOf("RetryBudget.make: window", options.window, false) })
  })
  return {
    deposit: (nowMillis) => RetryDeposits.deposit(state, nowMillis),
    withdraw: (cost, nowMillis) => RetryDeposits.withdraw(state, cost, nowMillis),
    balance: (nowMillis) => RetryDeposits.balance(state, nowMillis)
  }
}

/**
 * The budget that the running fiber draws on: the fleet's, or outside a fleet one for the whole process.
 *
 * @category services
 * @since 0.1.0
 */
export const CurrentRetryBudget: Context.Reference<RetryBudget> = Context.Reference<RetryBudget>(
  "espalier/CurrentRetryBudget",
  { defaultValue: () => make() }
)
