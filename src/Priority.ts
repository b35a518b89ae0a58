/**
 * How much a piece of work matters, as one of four tiers.
 *
 * Under overload something has to give. A tier says, before the overload, what gives last: 0 must ship, 3 is nice to
 * have. Work that nobody labelled is tier 3, so that a label is what earns a place and not what loses one. A child
 * inherits its parent's tier and cannot change it. The idea is SRE's criticality and Kubernetes' priority levels.
 *
 * @stability experimental
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

/**
 * A tier: 0 (must ship), 1, 2, 3 (nice to have).
 *
 * **Example** (Decoding a tier from outside)
 *
 * ```ts
 * import { Schema } from "effect"
 * import * as Priority from "espalier/Priority"
 *
 * console.log(Schema.decodeUnknownSync(Priority.Priority)(1)) // => 1
 * ```
 *
 * @category models
 * @since 0.1.0
 */
export const Priority = Schema.Literals([0, 1, 2, 3])

/**
 * A tier: 0 (must ship), 1, 2, 3 (nice to have).
 *
 * @category models
 * @since 0.1.0
 */
export type Priority = typeof Priority.Type

/**
 * All tiers, the most important first.
 *
 * @category models
 * @since 0.1.0
 */
export const all: readonly [0, 1, 2, 3] = [0, 1, 2, 3]

/**
 * The tier of work that nobody labelled: 3.
 *
 * @category constructors
 * @since 0.1.0
 */
export const unlabelled: Priority = 3

/**
 * Checks a tier that comes from outside.
 *
 * **Errors** a `RangeError` that names the caller and the value, for anything but 0, 1, 2 and 3.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (value: number, where: string = "Priority.make"): Priority => {
  if (value === 0 || value === 1 || value === 2 || value === 3) return value
  throw new RangeError(`${where}: priority must be 0 (must ship), 1, 2 or 3 (nice to have), got ${String(value)}`)
}
