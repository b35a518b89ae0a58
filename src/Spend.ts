/**
 * Tokens and money, as one value.
 *
 * A model call costs both and neither follows from the other (cached tokens, output tokens and models differ in
 * price), so every account, hold and report carries the two together. Money is counted in whole micro-dollars: binary
 * fractions of a dollar drift, integers do not.
 *
 * As a limit, an absent unit is *unlimited* and 0 is *nothing at all*. As an amount, an absent unit is 0.
 *
 * @stability experimental
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { integer } from "./internal/number.ts"

const Count = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))

/**
 * Tokens and micro-dollars; both are safe integers of at least 0.
 *
 * @category models
 * @since 0.1.0
 */
export const Spend = Schema.Struct({
  tokens: Schema.optionalKey(Count),
  microDollars: Schema.optionalKey(Count)
})

/**
 * Tokens and micro-dollars; both are safe integers of at least 0.
 *
 * @category models
 * @since 0.1.0
 */
export interface Spend {
  readonly tokens?: number
  readonly microDollars?: number
}

/**
 * An amount with both units present.
 *
 * @category models
 * @since 0.1.0
 */
export interface Amount {
  readonly tokens: number
  readonly microDollars: number
}

/**
 * Nothing spent.
 *
 * @category constructors
 * @since 0.1.0
 */
export const zero: Amount = { tokens: 0, microDollars: 0 }

/**
 * No limit on either unit.
 *
 * @category constructors
 * @since 0.1.0
 */
export const unlimited: Spend = {}

/**
 * Checks tokens and micro-dollars that come from outside.
 *
 * **Errors** a `RangeError` that names the caller, the unit and the value: negative, fractional, NaN, infinite and
 * unsafe numbers are refused, none is rounded.
 *
 * **Example** (A budget of tokens and of a dollar and a half)
 *
 * ```ts
 * import * as Spend from "espalier/Spend"
 *
 * const budget = Spend.make({ tokens: 100_000, microDollars: Spend.fromDollars(1.5) })
 * console.log(budget.microDollars) // => 1500000
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (spend: Spend, where: string = "Spend.make"): Spend => {
  if (spend.tokens !== undefined) integer(`${where}: tokens`, spend.tokens, 0)
  if (spend.microDollars !== undefined) integer(`${where}: microDollars`, spend.microDollars, 0)
  return spend
}

/**
 * Whole micro-dollars from dollars, rounded up: what costs anything costs at least 1.
 *
 * **Errors** a `RangeError` for a negative, NaN or unsafe amount.
 *
 * @category constructors
 * @since 0.1.0
 */
export const fromDollars = (dollars: number): number => {
  // A product such as 1.1 * 1e6 = 1100000.0000000001 must not round up by a whole unit.
  const micro = dollars * 1_000_000
  const near = Math.round(micro)
  return integer(
    "Spend.fromDollars: dollars * 1e6",
    Math.abs(micro - near) < 1e-6 * Math.max(1, near) && near > 0 ? near : Math.ceil(micro),
    0
  )
}

/**
 * The sum of two amounts; an absent unit counts as 0.
 *
 * @category combinators
 * @since 0.1.0
 */
export const add = (a: Spend, b: Spend): Amount => ({
  tokens: (a.tokens ?? 0) + (b.tokens ?? 0),
  microDollars: (a.microDollars ?? 0) + (b.microDollars ?? 0)
})
