/**
 * Checks of durations that come from outside: what is no duration (NaN, text that does not parse, below its bound) is a
 * `RangeError` that names who, what and the value, and never silently zero.
 *
 * @internal
 */
import * as Duration from "effect/Duration"
import * as Option from "effect/Option"

const shown = (input: Duration.Input): string =>
  typeof input === "object" ? "a value out of range" : (JSON.stringify(input) ?? String(input))

/** The milliseconds of a duration of at least 0; `Infinity` where that is allowed. */
export const millisOf = (where: string, input: Duration.Input, allowsInfinity: boolean = true): number => {
  const parsed = typeof input === "number" && Number.isNaN(input) ? Option.none() : Duration.fromInput(input)
  const millis = Option.isSome(parsed) ? Duration.toMillis(parsed.value) : Number.NaN
  // A negative number is read as zero there; here it is what was given that counts.
  const negative = typeof input === "number" && input < 0
  if (millis >= 0 && !negative && (allowsInfinity || millis < Infinity)) return millis
  const given = typeof input === "number" ? String(input) : shown(input)
  throw new RangeError(`${where} must be a duration >= 0${allowsInfinity ? "" : " and finite"}, got ${given}`)
}
