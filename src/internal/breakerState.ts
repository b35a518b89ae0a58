/**
 * Stops calling what is broken, and finds out with a single call whether it has recovered.
 *
 * When a dependency is down, every call to it waits for a time-out, holds a slot meanwhile, and adds to the load that
 * keeps it down. So after enough failures the breaker opens: calls are refused at once and told when to come back.
 * When the open time is over, exactly one call goes through as a probe. If it succeeds the breaker closes, and lets
 * the load back in by doubling steps; if it fails the breaker opens again.
 *
 * ```
 *   Closed ──too many failures──▶ Open ──time is over, next call──▶ HalfOpen
 *     ▲                            ▲                                │  │  ▲
 *     └──────probe succeeds────────┼────────────────────────────────┘  └──┘ probe says nothing, or its lease lapses
 *                                  └──────────probe fails───────────────┘
 * ```
 *
 * Stands before the gate, so that a call to a dead dependency does not even wait in line. It never waits, never
 * retries, and does not judge: the caller says whether an outcome was a success, a failure, or nothing that tells of
 * health (interruption, a caller's error, a throttle, our own refusals). How long it stays open is the caller's
 * schedule. Follows Effect's `CircuitBreaker` and resilience4j, with two differences that bug reports taught: a probe
 * holds a lease, so one that never settles cannot keep the breaker half-open for ever; and every ticket carries the
 * generation it was given in, so a result that comes late changes nothing.
 *
 * **Details** Pure: each function returns a decision and the next state. Units: milliseconds of a monotonic clock. A
 * clock that steps back behind the last change counts as standing at it, so nobody is locked out longer than the open
 * time or the lease.
 *
 * @since 0.1.0
 */

/**
 * When to open.
 *
 * **Details** `consecutive`: after so many failures without a success between them, an integer >= 1. `rate`: when of
 * the results of the last `windowMillis` (a finite number > 0) at least this share, in (0, 1], are failures, and
 * there are at least `minimum` results (an integer >= 1). The window moves in tenths and expires while idle.
 *
 * @category models
 * @since 0.1.0
 */
export type Policy =
  | { readonly consecutive: number }
  | { readonly rate: number; readonly windowMillis: number; readonly minimum: number }

/**
 * How a breaker behaves.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options {
  /** When to open. Default 5 consecutive failures. */
  readonly policy?: Policy
  /** How long to stay open unless `openFor` says otherwise: milliseconds, a finite number > 0. Default 30 000. */
  readonly openMillis?: number
  /**
   * How long a probe may take before another one is admitted: milliseconds, a finite number > 0. Default 30 000, as
   * long as the breaker was willing to stay open anyway.
   */
  readonly probeLeaseMillis?: number
  /** How often the allowance doubles after closing: milliseconds, a finite number > 0. Default 1000. */
  readonly rampStepMillis?: number
}

/**
 * What an outcome tells of the health of the dependency.
 *
 * @category models
 * @since 0.1.0
 */
export type Outcome = "success" | "failure" | "ignored"

/**
 * Leave to make one call, to be handed to `record` with its outcome, once.
 *
 * @category models
 * @since 0.1.0
 */
export interface Admitted {
  readonly _tag: "Admitted"
  readonly generation: number
  readonly probe: boolean
}

/**
 * The answer to a call that must not be made.
 *
 * @category models
 * @since 0.1.0
 */
export interface Refused {
  readonly _tag: "Refused"
  /** When to ask again at the earliest; `Infinity` when the breaker is held open without an end. */
  readonly retryAfterMillis: number
}

/**
 * A change of state that an outcome brought about.
 *
 * @category models
 * @since 0.1.0
 */
export interface Transition {
  readonly from: "Closed" | "HalfOpen"
  readonly to: "Open" | "Closed"
  /** How often it has opened in a row, without closing in between; 0 when it closes. */
  readonly trips: number
}

/**
 * Calls go through and are counted.
 *
 * @category models
 * @since 0.1.0
 */
export interface Closed {
  readonly _tag: "Closed"
  readonly settings: Required<Options>
  readonly generation: number
  /** When it closed; `-Infinity` for one that was never open. */
  readonly sinceMillis: number
  /** Until when it is held closed whatever happens; `-Infinity` when it is not. */
  readonly heldUntilMillis: number
  /** The ticket of every call of this generation. */
  readonly ticket: Admitted
  /** Failures since the last success. */
  readonly failures: number
  /** The window: results and failures of each tenth, one after the other. */
  readonly window: ReadonlyArray<number>
  /** Number of the latest tenth. */
  readonly tenth: number
}

/**
 * Calls are refused.
 *
 * @category models
 * @since 0.1.0
 */
export interface Open {
  readonly _tag: "Open"
  readonly settings: Required<Options>
  readonly generation: number
  readonly trips: number
  readonly sinceMillis: number
  readonly untilMillis: number
  /** Whether it was opened by hand. */
  readonly held: boolean
}

/**
 * One call finds out.
 *
 * @category models
 * @since 0.1.0
 */
export interface HalfOpen {
  readonly _tag: "HalfOpen"
  readonly settings: Required<Options>
  readonly generation: number
  readonly trips: number
  /** When the probe was admitted. */
  readonly sinceMillis: number
  /** Until when its lease runs; `-Infinity` when there is no probe. */
  readonly leaseUntilMillis: number
}

/**
 * The state of a breaker. Immutable.
 *
 * @category models
 * @since 0.1.0
 */
export type BreakerState = Closed | Open | HalfOpen

const tenths = 10

const check = (caller: string, name: string, must: string, holds: boolean, value: unknown): void => {
  if (!holds) throw new RangeError(`breakerState.${caller}: ${name} must be ${must}, got ${String(value)}`)
}

const checkMillis = (caller: string, name: string, value: number): void =>
  check(caller, name, "a finite number > 0", value > 0 && value < Infinity, value)

const closed = (
  settings: Required<Options>,
  generation: number,
  sinceMillis: number,
  heldUntilMillis = -Infinity
): Closed => ({
  _tag: "Closed",
  settings,
  generation,
  sinceMillis,
  heldUntilMillis,
  ticket: { _tag: "Admitted", generation, probe: false },
  failures: 0,
  window: [],
  tenth: -Infinity
})

/**
 * Makes a breaker that is closed and lets the full load through.
 *
 * **Errors** A `RangeError` for an option out of its range.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (options: Options = {}): BreakerState => {
  const { openMillis = 30_000, policy = { consecutive: 5 }, probeLeaseMillis = 30_000, rampStepMillis = 1000 } = options
  const count = (value: number): boolean => Number.isSafeInteger(value) && value >= 1
  if ("consecutive" in policy) {
    check("make", "policy.consecutive", "an integer >= 1", count(policy.consecutive), policy.consecutive)
  } else {
    check("make", "policy.rate", "a number > 0 and <= 1", policy.rate > 0 && policy.rate <= 1, policy.rate)
    check("make", "policy.minimum", "an integer >= 1", count(policy.minimum), policy.minimum)
    checkMillis("make", "policy.windowMillis", policy.windowMillis)
  }
  checkMillis("make", "openMillis", openMillis)
  checkMillis("make", "probeLeaseMillis", probeLeaseMillis)
  checkMillis("make", "rampStepMillis", rampStepMillis)
  return closed({ openMillis, policy, probeLeaseMillis, rampStepMillis }, 0, -Infinity)
}

/** The state as of now: an interval that a clock which stepped back would stretch begins now instead. */
const notAhead = <S extends Open | HalfOpen>(state: S, nowMillis: number): S => {
  const ahead = state.sinceMillis - nowMillis
  if (!(ahead > 0)) return state
  return state._tag === "Open"
    ? { ...state, sinceMillis: nowMillis, untilMillis: state.untilMillis - ahead }
    : { ...state, sinceMillis: nowMillis, leaseUntilMillis: state.leaseUntilMillis - ahead }
}

/**
 * Asks for leave to make one call.
 *
 * **Details** When it is time for a probe, this call is it, and the state becomes `HalfOpen`. Its lease runs for
 * `leaseMillis`, by default the configured one; give the deadline of the call if that is earlier.
 *
 * @category operations
 * @since 0.1.0
 */
export const admit = (
  state: BreakerState,
  nowMillis: number,
  leaseMillis: number = state.settings.probeLeaseMillis
): readonly [Admitted | Refused, BreakerState] => {
  if (state._tag === "Closed") return [state.ticket, state]
  checkMillis("admit", "leaseMillis", leaseMillis)
  const current = notAhead(state, nowMillis)
  const untilMillis = current._tag === "Open" ? current.untilMillis : current.leaseUntilMillis
  if (nowMillis < untilMillis) return [{ _tag: "Refused", retryAfterMillis: untilMillis - nowMillis }, current]
  // A generation of its own for every probe: the result of one whose lease has lapsed belongs to none.
  const generation = current.generation + 1
  const { settings, trips } = current
  const leaseUntilMillis = nowMillis + leaseMillis
  return [
    { _tag: "Admitted", generation, probe: true },
    { _tag: "HalfOpen", settings, generation, trips, sinceMillis: nowMillis, leaseUntilMillis }
  ]
}

const open = (state: BreakerState, trips: number, nowMillis: number): readonly [Transition, Open] => {
  const { settings } = state
  return [
    { from: state._tag === "Closed" ? "Closed" : "HalfOpen", to: "Open", trips },
    {
      _tag: "Open",
      settings,
      generation: state.generation + 1,
      trips,
      sinceMillis: nowMillis,
      untilMillis: nowMillis + settings.openMillis,
      held: false
    }
  ]
}

/** Counts one result in the window, having dropped the tenths that have passed. */
const counted = (state: Closed, failure: boolean, windowMillis: number, nowMillis: number): Closed => {
  const tenth = Math.max(state.tenth, Math.floor((nowMillis * tenths) / windowMillis))
  const window = state.window.length === 0 ? Array<number>(2 * tenths).fill(0) : [...state.window]
  for (let passed = Math.max(state.tenth + 1, tenth - tenths + 1); passed <= tenth; passed++) {
    const index = 2 * (((passed % tenths) + tenths) % tenths)
    window[index] = 0
    window[index + 1] = 0
  }
  const index = 2 * (((tenth % tenths) + tenths) % tenths)
  window[index]!++
  if (failure) window[index + 1]!++
  return { ...state, window, tenth }
}

const isTooMuch = (state: Closed): boolean => {
  const { policy } = state.settings
  if ("consecutive" in policy) return state.failures >= policy.consecutive
  let results = 0
  let failures = 0
  for (let index = 0; index < state.window.length; index += 2) {
    results += state.window[index]!
    failures += state.window[index + 1]!
  }
  return results >= policy.minimum && failures >= policy.rate * results
}

const recordClosed = (
  state: Closed,
  failure: boolean,
  nowMillis: number
): readonly [Transition | undefined, BreakerState] => {
  if (nowMillis < state.heldUntilMillis) return [undefined, state]
  const { policy } = state.settings
  if ("consecutive" in policy) {
    if (!failure) return [undefined, state.failures === 0 ? state : { ...state, failures: 0 }]
    const next = { ...state, failures: state.failures + 1 }
    return isTooMuch(next) ? open(state, 1, nowMillis) : [undefined, next]
  }
  const next = counted(state, failure, policy.windowMillis, nowMillis)
  return isTooMuch(next) ? open(state, 1, nowMillis) : [undefined, next]
}

/**
 * Takes note of how a call ended. Returns the transition it brought about, if any.
 *
 * **Details** A result of an earlier generation, or of a probe whose lease has lapsed, changes nothing. An `ignored`
 * outcome decides nothing: of a probe, it frees the slot for the next one. When the transition is to `Open`, hand
 * `trips` to the schedule and what it says to `openFor`.
 *
 * @category operations
 * @since 0.1.0
 */
export const record = (
  state: BreakerState,
  ticket: Admitted,
  outcome: Outcome,
  nowMillis: number
): readonly [Transition | undefined, BreakerState] => {
  if (ticket.generation !== state.generation || state._tag === "Open") return [undefined, state]
  if (state._tag === "Closed") {
    return outcome === "ignored" ? [undefined, state] : recordClosed(state, outcome === "failure", nowMillis)
  }
  if (!(notAhead(state, nowMillis).leaseUntilMillis > nowMillis)) return [undefined, state]
  if (outcome === "failure") return open(state, state.trips + 1, nowMillis)
  const generation = state.generation + 1
  if (outcome === "ignored") return [undefined, { ...state, generation, leaseUntilMillis: -Infinity }]
  return [{ from: "HalfOpen", to: "Closed", trips: 0 }, closed(state.settings, generation, nowMillis)]
}

/**
 * Sets how long a breaker that has just opened stays open, from the instant it opened. Any other state is returned as
 * it is.
 *
 * @category operations
 * @since 0.1.0
 */
export const openFor = (state: BreakerState, openMillis: number): BreakerState => {
  checkMillis("openFor", "openMillis", openMillis)
  return state._tag === "Open" && !state.held ? { ...state, untilMillis: state.sinceMillis + openMillis } : state
}

/**
 * How many calls may be in flight at once, of a limit.
 *
 * **Details** All of them while closed, none while open, one while half-open. After closing 1, 2, 4 … doubling every
 * `rampStepMillis` up to the limit: those who waited for the probe must not fall over what has just recovered.
 *
 * @category getters
 * @since 0.1.0
 */
export const allowance = (state: BreakerState, nowMillis: number, limit: number): number => {
  if (state._tag === "Open") return 0
  if (state._tag === "HalfOpen") return Math.min(1, limit)
  const steps = Math.floor((nowMillis - state.sinceMillis) / state.settings.rampStepMillis)
  return Math.min(2 ** Math.max(0, steps), limit)
}

/** A breaker that is closed by hand has calls in flight already if it was closed before, and ramps if it was not. */
const closedSince = (state: BreakerState, nowMillis: number): number =>
  state._tag === "Closed" ? state.sinceMillis : nowMillis

const checkUntil = (caller: string, untilMillis: number): void =>
  check(caller, "untilMillis", "a number", !Number.isNaN(untilMillis), untilMillis)

/**
 * Holds the breaker open until an instant, by default until it is reset. Then a probe finds out.
 *
 * @category operations
 * @since 0.1.0
 */
export const forceOpen = (state: BreakerState, nowMillis: number, untilMillis: number = Infinity): BreakerState => {
  checkUntil("forceOpen", untilMillis)
  const { generation, settings } = state
  return {
    _tag: "Open",
    settings,
    generation: generation + 1,
    trips: 0,
    sinceMillis: nowMillis,
    untilMillis,
    held: true
  }
}

/**
 * Holds the breaker closed until an instant, by default until it is reset. Results do not count until then.
 *
 * @category operations
 * @since 0.1.0
 */
export const forceClosed = (state: BreakerState, nowMillis: number, untilMillis: number = Infinity): BreakerState => {
  checkUntil("forceClosed", untilMillis)
  return closed(state.settings, state.generation + 1, closedSince(state, nowMillis), untilMillis)
}

/**
 * Closes the breaker and forgets everything, what it was held at included.
 *
 * @category operations
 * @since 0.1.0
 */
export const reset = (state: BreakerState, nowMillis: number): BreakerState =>
  closed(state.settings, state.generation + 1, closedSince(state, nowMillis))
