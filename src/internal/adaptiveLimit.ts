/**
 * Learns how many calls a dependency bears at once.
 *
 * A provider does not say how many calls it serves side by side, and the number changes by the hour. Too few in
 * flight waste it, too many only wait inside it, and then are thrown out. Two signs tell where the edge is. Loss: it
 * throttles, or a call runs into our own time-out; then the limit is cut at once. Delay: the first token comes later
 * than it does when nothing waits; then as many calls as must be waiting in there are taken off the limit. As long as
 * neither shows and the limit is really used, it grows.
 *
 * Belongs to a gate, which reports what happens and keeps its slots at `limit`. It holds no slots, delays nobody and
 * reads no clock. Loss and growth follow TCP's congestion avoidance (multiplicative decrease, additive increase, and
 * Reno's memory of where it hurt), delay follows Vegas, but on the time to the first token: answers differ a
 * hundredfold in length, and on whole latencies both Vegas and Gradient take a long answer for congestion.
 *
 * **Details**
 * Loss: × `cutRatio`, at most once in max(`coolDownMillis`, twice the median time to the first token).
 * Delay: for each ten first tokens, `queued = limit × max(0, median - toleranceRatio × base) / mean latency`; when
 * that is more than 3 and more than 10 % of the limit it is subtracted, at most half the limit at once.
 * Base: the time to the first token when nothing waits. A lower median lowers it at once. To raise it takes more than
 * a higher one, which may as well be a queue: the least of the last sixty medians, say, creeps up with a slow queue and
 * never calls it one. So when no median has been as low for sixty of them and thirty latencies, the limit is halved for
 * one set of ten. If that made the first token come sooner, it was a queue, and the base stays; if not, the provider
 * has become slower, and the base rises.
 * Growth, by a success while at least `useRatio` of the limit is in flight: + 4/limit while below 0.9 of where it
 * last hurt, else + 1/limit. Having got 1.2 times beyond there unhurt, it forgets.
 * Below 10 slots a share of the limit is less than a slot, so it moves by whole ones: + 1 after `limit` successes,
 * - 1 a cut.
 * Results of calls that began before the last cut are ignored: they tell of the limit that was cut already.
 * Units: slots, milliseconds of a monotonic clock. Memory: some twenty numbers; all operations are O(1).
 *
 * **Gotchas** The state is changed in place; it belongs to one owner. Answers that come at once because they are
 * refusals are no successes, and must not be reported as such.
 *
 * @since 0.1.0
 */

/**
 * How a limit moves.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options {
  /** Slots to begin with: an integer from `minimum` to `maximum`. Default `minimum`; or what a calibration found. */
  readonly initial?: number
  /** The least it can fall to: an integer >= 1, for without a call nothing is learnt. Default 1. */
  readonly minimum?: number
  /** The most it can grow to: an integer >= `minimum`. Default 1000, beyond which one process is the bottleneck. */
  readonly maximum?: number
  /** What a loss leaves of the limit, in (0, 1). Default 0.8. */
  readonly cutRatio?: number
  /** The least time between two cuts: milliseconds, a finite number > 0. Default 2000. */
  readonly coolDownMillis?: number
  /** How much of the limit must be in flight for it to grow, in [0, 1]. Default 0.8. */
  readonly useRatio?: number
  /** How many times the baseline a first token may take before something waits: a finite number >= 1. Default 1.3. */
  readonly toleranceRatio?: number
}

/**
 * The state of a limit, changed in place by the functions of this module and read through them.
 *
 * @category models
 * @since 0.1.0
 */
export interface AdaptiveLimit {
  readonly minimum: number
  readonly maximum: number
  readonly cutRatio: number
  readonly coolDownMillis: number
  readonly useRatio: number
  readonly toleranceRatio: number
  /** The limit with its fraction of a slot; a whole number below 10. */
  slots: number
  /** Where the last cut was made. */
  hurtSlots: number
  lastCutMillis: number
  /** Successes in use since the last step; counts below 10 slots only. */
  successes: number
  /** Times to the first token that are not in a median yet. */
  readonly firstTokens: Array<number>
  /** The last median taken at the full limit. */
  medianMillis: number
  /** The time to the first token when nothing waits. */
  baseMillis: number
  /** Medians, and since when, without one that set the base. */
  mediansSinceBase: number
  baseSinceMillis: number
  /** Since when the limit is halved; `Infinity` while it is not. */
  halvedSinceMillis: number
  /** Exponential mean of whole latencies; NaN before the first. */
  meanLatencyMillis: number
}

/** Below this many slots the limit moves by whole ones: a tenth of it, the least that delay reacts to, is one slot. */
const smallSlots = 10
/** Ten samples make a median that one odd answer cannot move. */
const samplesPerMedian = 10
/** Half the limit for one or two latencies out of thirty costs about 3 % of the throughput, and only in a queue. */
const mediansPerBase = 60
const latenciesPerBase = 30
/** Weight of a new latency in the mean: about the last thirty count. */
const latencyWeight = 1 / 32

const check = (name: string, must: string, holds: boolean, value: number): void => {
  if (!holds) throw new RangeError(`adaptiveLimit.make: ${name} must be ${must}, got ${value}`)
}

/**
 * Makes a limit that has learnt nothing yet.
 *
 * **Errors** A `RangeError` for an option out of its range.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (options: Options = {}): AdaptiveLimit => {
  const { coolDownMillis = 2000, cutRatio = 0.8, maximum = 1000, minimum = 1 } = options
  const { initial = minimum, toleranceRatio = 1.3, useRatio = 0.8 } = options
  check("minimum", "an integer >= 1", Number.isSafeInteger(minimum) && minimum >= 1, minimum)
  check("maximum", "an integer >= minimum", Number.isSafeInteger(maximum) && maximum >= minimum, maximum)
  const inRange = Number.isSafeInteger(initial) && initial >= minimum && initial <= maximum
  check("initial", "an integer from minimum to maximum", inRange, initial)
  check("cutRatio", "a number > 0 and < 1", cutRatio > 0 && cutRatio < 1, cutRatio)
  check("coolDownMillis", "a finite number > 0", coolDownMillis > 0 && coolDownMillis < Infinity, coolDownMillis)
  check("useRatio", "a number from 0 to 1", useRatio >= 0 && useRatio <= 1, useRatio)
  check("toleranceRatio", "a finite number >= 1", toleranceRatio >= 1 && toleranceRatio < Infinity, toleranceRatio)
  return {
    minimum,
    maximum,
    cutRatio,
    coolDownMillis,
    useRatio,
    toleranceRatio,
    slots: initial,
    hurtSlots: Infinity,
    lastCutMillis: -Infinity,
    successes: 0,
    firstTokens: [],
    medianMillis: 0,
    baseMillis: Infinity,
    mediansSinceBase: 0,
    baseSinceMillis: -Infinity,
    halvedSinceMillis: Infinity,
    meanLatencyMillis: Number.NaN
  }
}

/**
 * Slots now, a whole number: half of `slots` while the base is being measured.
 *
 * @category getters
 * @since 0.1.0
 */
export const limit = (state: AdaptiveLimit): number =>
  state.halvedSinceMillis < Infinity ? Math.max(state.minimum, Math.floor(state.slots / 2)) : Math.floor(state.slots)

/** Whether a call tells of the limit as it is now. */
const isCurrent = (state: AdaptiveLimit, startedMillis: number, nowMillis: number): boolean => {
  // The clock stepped back: waiting for it to catch up with the last cut would keep the limit from moving at all.
  if (nowMillis < state.lastCutMillis) state.lastCutMillis = nowMillis
  return startedMillis >= state.lastCutMillis && nowMillis >= startedMillis
}

const cut = (state: AdaptiveLimit, toSlots: number, nowMillis: number): void => {
  if (nowMillis < state.lastCutMillis + Math.max(state.coolDownMillis, 2 * state.medianMillis)) return
  state.hurtSlots = state.slots
  state.lastCutMillis = nowMillis
  state.successes = 0
  state.firstTokens.length = 0
  let slots = state.slots < smallSlots ? state.slots - 1 : toSlots
  if (slots < smallSlots) slots = Math.floor(slots)
  state.slots = Math.max(state.minimum, slots)
}

/**
 * Reports that a call was throttled, or ran into our own time-out.
 *
 * @category operations
 * @since 0.1.0
 */
export const dropped = (state: AdaptiveLimit, startedMillis: number, nowMillis: number): void => {
  if (isCurrent(state, startedMillis, nowMillis)) cut(state, state.slots * state.cutRatio, nowMillis)
}

/**
 * Reports that a call succeeded, and how many were in flight, itself included.
 *
 * @category operations
 * @since 0.1.0
 */
export const succeeded = (state: AdaptiveLimit, startedMillis: number, inFlight: number, nowMillis: number): void => {
  if (!isCurrent(state, startedMillis, nowMillis)) return
  const latencyMillis = nowMillis - startedMillis
  state.meanLatencyMillis = Number.isNaN(state.meanLatencyMillis)
    ? latencyMillis
    : state.meanLatencyMillis + latencyWeight * (latencyMillis - state.meanLatencyMillis)
  // A limit that nobody reaches has not been tried, so nothing is known about a higher one.
  if (state.halvedSinceMillis < Infinity || !(inFlight >= state.useRatio * limit(state))) return
  if (state.slots < smallSlots) {
    if (++state.successes < state.slots) return
    state.successes = 0
    state.slots++
  } else {
    state.slots += (state.slots < 0.9 * state.hurtSlots ? 4 : 1) / state.slots
  }
  state.slots = Math.min(state.maximum, state.slots)
  if (state.slots > 1.2 * state.hurtSlots) state.hurtSlots = Infinity
}

const setBase = (state: AdaptiveLimit, baseMillis: number, nowMillis: number): void => {
  state.baseMillis = baseMillis
  state.mediansSinceBase = 0
  state.baseSinceMillis = nowMillis
}

/** The median of a full set, which it empties; `undefined` while there is none. */
const medianOf = (firstTokens: Array<number>): number | undefined => {
  if (firstTokens.length < samplesPerMedian) return undefined
  firstTokens.sort((a, b) => a - b)
  const median = (firstTokens[samplesPerMedian / 2 - 1]! + firstTokens[samplesPerMedian / 2]!) / 2
  firstTokens.length = 0
  return median
}

/**
 * Reports that the first token of a call has come.
 *
 * @category operations
 * @since 0.1.0
 */
export const firstToken = (state: AdaptiveLimit, startedMillis: number, nowMillis: number): void => {
  if (!isCurrent(state, startedMillis, nowMillis)) return
  const halved = state.halvedSinceMillis < Infinity
  if (halved && startedMillis < state.halvedSinceMillis) return
  state.firstTokens.push(nowMillis - startedMillis)
  const medianMillis = medianOf(state.firstTokens)
  if (medianMillis === undefined) return
  const { baseMillis, slots, toleranceRatio } = state
  if (halved) {
    state.halvedSinceMillis = Infinity
    const sooner = medianMillis < 0.9 * state.medianMillis
    const base = sooner && medianMillis > toleranceRatio * baseMillis ? baseMillis : medianMillis
    setBase(state, base, nowMillis)
    return
  }
  state.medianMillis = medianMillis
  state.mediansSinceBase++
  const late = Math.max(0, medianMillis - toleranceRatio * baseMillis)
  // Little's law: what waits inside is the rate times the time it waits, and the rate is slots over latency.
  const queued = late === 0 ? 0 : (slots * late) / state.meanLatencyMillis
  if (medianMillis <= baseMillis) setBase(state, medianMillis, nowMillis)
  else if (queued > Math.max(3, 0.1 * slots)) cut(state, Math.max(slots - queued, slots / 2), nowMillis)
  if (
    state.mediansSinceBase >= mediansPerBase &&
    nowMillis >= state.baseSinceMillis + latenciesPerBase * state.meanLatencyMillis
  ) {
    state.halvedSinceMillis = nowMillis
  }
}
