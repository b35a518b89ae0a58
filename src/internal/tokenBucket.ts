/**
 * A bucket of tokens that fills at a steady rate and pays for work by its cost.
 *
 * A provider says "so many tokens a minute". A counter that restarts every minute lets twice that through around
 * its edge; a bucket has no edge. It holds at most `capacity` tokens (the burst), gains `ratePerSecond`, and work
 * starts when the bucket holds its cost. What it is charged up front is an estimate, so the charge can be handed
 * back (`refund`) or replaced by the truth (`reconcile`), which may leave the bucket in debt.
 *
 * Asked by the gate just before work starts. It keeps no line of its own, arms no timer and reads no clock: whoever
 * waits, waits elsewhere, and asks `waitMillis` how long. Refusing charges nothing. Every operation is O(1) and
 * allocates nothing. In any window of `w` seconds at most `ratePerSecond × w + capacity` is taken, plus what is
 * refunded. Follows `golang.org/x/time/rate`, which also passes the time in.
 *
 * **Details** Units: tokens (any unit of cost: requests, tokens, micro-dollars), tokens per second, milliseconds of
 * a monotonic clock. A clock that steps back fills nothing and locks nobody out: filling goes on from the earlier
 * instant, and the step forward that undoes it fills nothing either.
 *
 * **Gotchas** The bucket is changed in place; it belongs to one owner.
 *
 * @since 0.1.0
 */

/**
 * How fast a bucket fills and how much it holds.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options {
  /** Tokens gained a second. A finite number > 0; anything else is a `RangeError`. */
  readonly ratePerSecond: number
  /** Tokens held when full: the largest burst, and the largest single cost. A finite number > 0. */
  readonly capacity: number
}

/**
 * The state of a bucket, changed in place by the functions of this module and read through them.
 *
 * @category models
 * @since 0.1.0
 */
export interface TokenBucket {
  ratePerSecond: number
  capacity: number
  /** Tokens held at `baseMillis`; what was gained since is computed, so that reading never adds rounding errors. */
  base: number
  baseMillis: number
  /** The last instant seen, to notice a clock that steps back. */
  seenMillis: number
  /** The latest instant ever seen, to notice the step that undoes it. */
  highMillis: number
  pausedUntilMillis: number
}

/**
 * Cost that a bucket cannot tell from its level, as a share of the cost. Without it a wait computed in binary
 * fractions may end a hair too early and be answered by another wait of no length at all.
 */
const slack = 1e-9

/** Waits are rounded up to this many to the millisecond: about a microsecond, which any sensible clock can show. */
const stepsPerMillis = 1024

const positive = (caller: string, name: string, value: number): number => {
  if (!(value > 0 && value < Infinity)) {
    throw new RangeError(`tokenBucket.${caller}: ${name} must be a finite number > 0, got ${value}`)
  }
  return value
}

// One NaN or negative cost would switch a limit off for good, and one of 1e308 would lock it: refused before the
// state is touched.
const checkCost = (caller: string, name: string, value: number): void => {
  if (!(value >= 0 && value <= Number.MAX_SAFE_INTEGER)) {
    throw new RangeError(`tokenBucket.${caller}: ${name} must be a number from 0 to 2^53 - 1, got ${value}`)
  }
}

/**
 * Makes a bucket, full unless `level` says otherwise.
 *
 * **Details** `level` is in tokens, from 0 to `capacity`; a bucket that recovers starts below full.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (options: Options, nowMillis: number, level: number = options.capacity): TokenBucket => {
  const ratePerSecond = positive("make", "ratePerSecond", options.ratePerSecond)
  const capacity = positive("make", "capacity", options.capacity)
  if (!(level >= 0 && level <= capacity)) {
    throw new RangeError(`tokenBucket.make: level must be a number from 0 to capacity, got ${level}`)
  }
  if (!(Math.abs(nowMillis) < Infinity)) {
    throw new RangeError(`tokenBucket.make: nowMillis must be a finite number, got ${nowMillis}`)
  }
  return {
    ratePerSecond,
    capacity,
    base: level,
    baseMillis: nowMillis,
    seenMillis: nowMillis,
    highMillis: nowMillis,
    pausedUntilMillis: -Infinity
  }
}

const levelAt = (bucket: TokenBucket, nowMillis: number): number =>
  Math.min(bucket.capacity, bucket.base + ((nowMillis - bucket.baseMillis) * bucket.ratePerSecond) / 1000)

/** Takes note of the time and returns the level. */
const observe = (bucket: TokenBucket, nowMillis: number): number => {
  if (!(Math.abs(nowMillis) < Infinity)) {
    throw new RangeError(`tokenBucket: nowMillis must be a finite number, got ${nowMillis}`)
  }
  const seen = bucket.seenMillis
  if (nowMillis < seen || (seen < bucket.highMillis && nowMillis >= bucket.highMillis)) stepped(bucket, nowMillis)
  bucket.seenMillis = nowMillis
  if (nowMillis > bucket.highMillis) bucket.highMillis = nowMillis
  return levelAt(bucket, nowMillis)
}

/**
 * The clock stepped back, or forward again to where it had been. Neither is time that passed: the level stays as it
 * was when last seen, and a pause keeps the rest it had. Past the latest instant ever seen, time counts again.
 */
const stepped = (bucket: TokenBucket, nowMillis: number): void => {
  const from = Math.min(nowMillis, bucket.highMillis)
  bucket.base = levelAt(bucket, bucket.seenMillis)
  bucket.baseMillis = from
  bucket.pausedUntilMillis += from - bucket.seenMillis
}

const setLevel = (bucket: TokenBucket, level: number, nowMillis: number): void => {
  bucket.base = level
  bucket.baseMillis = nowMillis
}

/**
 * Tokens held now; negative while in debt.
 *
 * @category getters
 * @since 0.1.0
 */
export const level = (bucket: TokenBucket, nowMillis: number): number => observe(bucket, nowMillis)

/**
 * Whether work of this cost can never start, however long it waits: it costs more than a full bucket holds.
 *
 * @category getters
 * @since 0.1.0
 */
export const neverFits = (bucket: TokenBucket, cost: number): boolean => {
  checkCost("neverFits", "cost", cost)
  return cost > bucket.capacity
}

// Zero needs nothing, so it passes in debt as well; a pause stops everything.
const fits = (bucket: TokenBucket, held: number, cost: number, nowMillis: number): boolean =>
  nowMillis >= bucket.pausedUntilMillis &&
  (cost === 0 || (held >= cost - slack * Math.max(1, cost) && cost <= bucket.capacity))

/**
 * Whether `take` would succeed now.
 *
 * @category getters
 * @since 0.1.0
 */
export const canTake = (bucket: TokenBucket, cost: number, nowMillis: number): boolean => {
  checkCost("canTake", "cost", cost)
  return fits(bucket, observe(bucket, nowMillis), cost, nowMillis)
}

/**
 * Charges the cost if the bucket holds it. Otherwise charges nothing and returns `false`.
 *
 * **Errors** A `RangeError` for a cost that is not a number from 0 to 2^53 - 1; the bucket is unchanged.
 *
 * @category operations
 * @since 0.1.0
 */
export const take = (bucket: TokenBucket, cost: number, nowMillis: number): boolean => {
  checkCost("take", "cost", cost)
  const held = observe(bucket, nowMillis)
  if (!fits(bucket, held, cost, nowMillis)) return false
  if (cost > 0) setLevel(bucket, held - cost, nowMillis)
  return true
}

/**
 * Milliseconds until the cost fits if nobody else takes anything: 0 when it fits now, `Infinity` when it never will.
 *
 * **Details** Rounded up to 1/1024 ms, so that after the wait the cost fits.
 *
 * @category getters
 * @since 0.1.0
 */
export const waitMillis = (bucket: TokenBucket, cost: number, nowMillis: number): number => {
  checkCost("waitMillis", "cost", cost)
  if (cost > bucket.capacity) return Infinity
  const held = observe(bucket, nowMillis)
  if (fits(bucket, held, cost, nowMillis)) return 0
  const missing = cost === 0 ? 0 : cost - slack * Math.max(1, cost) - held
  const fill = Math.ceil((missing * 1000 * stepsPerMillis) / bucket.ratePerSecond) / stepsPerMillis
  return Math.max(fill, bucket.pausedUntilMillis - nowMillis, 1 / stepsPerMillis)
}

/**
 * Hands back a charge of work that did not happen: everybody else waits as if it had never been asked for.
 *
 * **Details** The level never rises above `capacity`.
 *
 * @category operations
 * @since 0.1.0
 */
export const refund = (bucket: TokenBucket, cost: number, nowMillis: number): void => {
  checkCost("refund", "cost", cost)
  setLevel(bucket, observe(bucket, nowMillis) + cost, nowMillis)
}

/**
 * Replaces a charge by what the work really cost.
 *
 * **Details** What was charged too much comes back; what was charged too little is taken even if the bucket does not
 * hold it. The level may go negative: that is debt, and everybody waits until it is filled up.
 *
 * @category operations
 * @since 0.1.0
 */
export const reconcile = (bucket: TokenBucket, charged: number, truth: number, nowMillis: number): void => {
  checkCost("reconcile", "charged", charged)
  checkCost("reconcile", "truth", truth)
  setLevel(bucket, observe(bucket, nowMillis) + charged - truth, nowMillis)
}

/**
 * Changes rate and capacity while running.
 *
 * **Details** Time up to now counts at the old rate. The level stays, cut to the new capacity: a larger bucket is not
 * filled for free.
 *
 * @category operations
 * @since 0.1.0
 */
export const reconfigure = (bucket: TokenBucket, options: Options, nowMillis: number): void => {
  const ratePerSecond = positive("reconfigure", "ratePerSecond", options.ratePerSecond)
  const capacity = positive("reconfigure", "capacity", options.capacity)
  const held = observe(bucket, nowMillis)
  bucket.ratePerSecond = ratePerSecond
  bucket.capacity = capacity
  setLevel(bucket, held, nowMillis)
}

/**
 * Lets nothing start before the instant, not even work that is free. The bucket fills meanwhile.
 *
 * **Details** The later of two pauses counts. `untilMillis` is an instant of the same clock as `nowMillis`, which
 * tells the bucket what the instant is relative to.
 *
 * @category operations
 * @since 0.1.0
 */
export const pauseUntil = (bucket: TokenBucket, untilMillis: number, nowMillis: number): void => {
  if (!(Math.abs(untilMillis) < Infinity)) {
    throw new RangeError(`tokenBucket.pauseUntil: untilMillis must be a finite number, got ${untilMillis}`)
  }
  observe(bucket, nowMillis)
  if (untilMillis > bucket.pausedUntilMillis) bucket.pausedUntilMillis = untilMillis
}

/**
 * Ends a pause at once.
 *
 * @category operations
 * @since 0.1.0
 */
export const resume = (bucket: TokenBucket): void => {
  bucket.pausedUntilMillis = -Infinity
}
