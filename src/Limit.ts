/**
 * How many calls a dependency takes at once.
 *
 * @stability experimental
 * @since 0.1.0
 */
import { integer } from "./internal/number.ts"

/**
 * A limit on calls in flight, in slots.
 *
 * @category models
 * @since 0.1.0
 */
export interface Limit {
  readonly _tag: "Fixed"
  readonly limit: number
}

/**
 * At most `limit` calls at once, an integer from 1 to 1 000 000.
 *
 * **Errors** a `RangeError` for anything else.
 *
 * @category constructors
 * @since 0.1.0
 */
export const fixed = (limit: number): Limit => ({
  _tag: "Fixed",
  limit: integer("Limit.fixed: limit", limit, 1, 1_000_000)
})
