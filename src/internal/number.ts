/**
 * Checks of numbers that come from outside. Bad configuration is a programmer's error: it throws at once, and the
 * message names the module, the option and the value.
 *
 * @internal
 */
const fail = (where: string, rule: string, value: unknown): never => {
  throw new RangeError(
    `${where} must be ${rule}, got ${typeof value === "string" ? JSON.stringify(value) : String(value)}`
  )
}

/** An integer from `min` to `max` (default 2^53 - 1). */
export const integer = (where: string, value: number, min: number, max: number = Number.MAX_SAFE_INTEGER): number =>
  Number.isSafeInteger(value) && value >= min && value <= max
    ? value
    : fail(where, max === Number.MAX_SAFE_INTEGER ? `an integer >= ${min}` : `an integer from ${min} to ${max}`, value)

/** An integer of at least `min`, or `Infinity` for no bound. */
export const integerOrInfinity = (where: string, value: number, min: number): number =>
  value === Infinity ? value : integer(where, value, min)

/** A finite number of at least `min` and at most `max`. */
export const finite = (where: string, value: number, min: number, max: number = Number.MAX_VALUE): number =>
  Number.isFinite(value) && value >= min && value <= max
    ? value
    : fail(where, max === Number.MAX_VALUE ? `a finite number >= ${min}` : `a number from ${min} to ${max}`, value)

/** A finite number greater than zero. */
export const positive = (where: string, value: number): number =>
  Number.isFinite(value) && value > 0 ? value : fail(where, "a finite number > 0", value)
