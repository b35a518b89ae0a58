/**
 * How many restarts in how short a time are one too many.
 *
 * A restart cures what is transient. Something that fails again right after it is not transient, and restarting it
 * for ever only burns budget. So a supervisor counts: more than `intensity` restarts within `periodMillis`, and it
 * gives up and fails itself, which hands the question to whoever is above.
 *
 * Asked by a supervisor before each restart. It restarts nothing, waits for nothing and reads no clock. Follows the
 * `intensity` and `period` of OTP's `supervisor`, its defaults aside: OTP's are 1 in 5 s, which suits processes that
 * start in microseconds and not calls that last seconds.
 *
 * **Details** Pure: `(state, now) => [allowed, state]`. Units: restarts, milliseconds of a monotonic clock. Keeps at
 * most `intensity` instants. A clock that steps back locks nobody out for longer than the period.
 *
 * @since 0.1.0
 */

/**
 * Restarts allowed in a period.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options {
  /** Restarts allowed in any period: an integer from 0 (never restart) to 10 000. Default 3. */
  readonly intensity?: number
  /** Length of the period in milliseconds, a finite number > 0. Default 60 000. */
  readonly periodMillis?: number
}

/**
 * The restarts that still count. Immutable.
 *
 * @category models
 * @since 0.1.0
 */
export interface RestartIntensity {
  readonly intensity: number
  readonly periodMillis: number
  /** Instants of the restarts of the last period, oldest first; at most `intensity` of them. */
  readonly restarts: ReadonlyArray<number>
}

/** What is counted is also kept; ten thousand instants are 80 kB, and no sane supervisor comes near. */
const intensityMax = 10_000

/**
 * Makes the state of a supervisor that has not restarted anything.
 *
 * **Errors** A `RangeError` for an option out of its range.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (options: Options = {}): RestartIntensity => {
  const { intensity = 3, periodMillis = 60_000 } = options
  if (!(Number.isInteger(intensity) && intensity >= 0 && intensity <= intensityMax)) {
    throw new RangeError(`restartIntensity.make: intensity must be an integer from 0 to 10000, got ${intensity}`)
  }
  if (!(periodMillis > 0 && periodMillis < Infinity)) {
    throw new RangeError(`restartIntensity.make: periodMillis must be a finite number > 0, got ${periodMillis}`)
  }
  return { intensity, periodMillis, restarts: [] }
}

const counting = (state: RestartIntensity, nowMillis: number): ReadonlyArray<number> => {
  if (!(Math.abs(nowMillis) < Infinity)) {
    throw new RangeError(`restartIntensity: nowMillis must be a finite number, got ${nowMillis}`)
  }
  // A restart later than now means that the clock stepped back; it counts as one of just now.
  return state.restarts
    .filter((restartMillis) => nowMillis - restartMillis <= state.periodMillis)
    .map((restartMillis) => Math.min(restartMillis, nowMillis))
}

/**
 * Asks for one restart. Returns whether it is allowed, and the state afterwards.
 *
 * **Details** A restart that lies exactly one period back still counts, as in OTP. A refused restart is not counted:
 * it does not happen.
 *
 * @category operations
 * @since 0.1.0
 */
export const restart = (state: RestartIntensity, nowMillis: number): readonly [boolean, RestartIntensity] => {
  const restarts = counting(state, nowMillis)
  if (restarts.length >= state.intensity) return [false, { ...state, restarts }]
  return [true, { ...state, restarts: [...restarts, nowMillis] }]
}

/**
 * How many restarts would be allowed now, one after the other.
 *
 * @category getters
 * @since 0.1.0
 */
export const remaining = (state: RestartIntensity, nowMillis: number): number =>
  state.intensity - counting(state, nowMillis).length
