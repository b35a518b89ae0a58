/**
 * How many calls a dependency takes at once.
 *
 * @stability experimental
 * @since 0.1.0
 */
import { integer } from "./internal/number.ts"

/**
 * A limit on calls in flight, in slots: a fixed one, or one that is learned.
 *
 * @category models
 * @since 0.1.0
 */
export type Limit =
  | { readonly _tag: "Fixed"; readonly limit: number }
  | { readonly _tag: "Adaptive"; readonly initial: number; readonly minimum: number; readonly maximum: number }

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

/**
 * A limit that finds out how many calls the dependency bears: it falls at once when calls are throttled or time out, or
 * when first tokens come late because calls wait inside the provider, and grows while it is used and nothing hurts.
 *
 * - `initial`: slots to begin with; default `minimum`, or give what a calibration found.
 * - `minimum`: default 1. `maximum`: default 1 000.
 *
 * **Errors** a `RangeError` for a number out of range.
 *
 * **Example** (Start at eight, learn the rest)
 *
 * ```ts
 * import * as Limit from "espalier/Limit"
 *
 * const limit = Limit.adaptive({ initial: 8, maximum: 64 })
 * console.log(limit._tag) // => Adaptive
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const adaptive = (
  options: { readonly initial?: number; readonly minimum?: number; readonly maximum?: number } = {}
): Limit => {
  const minimum = integer("Limit.adaptive: minimum", options.minimum ?? 1, 1, 1_000_000)
  const maximum = integer("Limit.adaptive: maximum", options.maximum ?? Math.max(1_000, minimum), minimum, 1_000_000)
  const initial = integer("Limit.adaptive: initial", options.initial ?? minimum, minimum, maximum)
  return { _tag: "Adaptive", initial, minimum, maximum }
}
