/**
 * Stops calling a dependency that is down, and finds out with one call whether it is back.
 *
 * ```text
 * Closed --trips--> Open --time passes--> HalfOpen --probe succeeds--> Closed (ramping 1, 2, 4 ...)
 *                    ^                        '------probe fails------> Open, for longer
 * ```
 *
 * A dependency that fails every call is not helped by more of them, and neither are the callers who wait for each to
 * fail. Open, a call is refused at once and cheaply. When the open time has passed exactly one call goes through, on a
 * lease: if it never settles, another takes its place and its own result counts no more. After closing, the gate is let
 * out step by step, so that those who waited do not fall over what has just recovered.
 *
 * Sits after the budget and before the gate. Never waits, never retries, knows neither. Learns from three outcomes:
 * what is `Ignored` (a caller's error, an interruption, our own refusals) moves nothing, and a throttle is not a failure.
 *
 * Units: milliseconds of the monotonic clock; rates are shares in (0, 1].
 *
 * **Errors** a `RangeError` that names the option and the value, when it is made.
 *
 * Follows Polly's circuit breaker, with generations (late results are harmless) and a leased probe.
 *
 * @stability experimental
 * @since 0.1.0
 */
import type * as Duration from "effect/Duration"
import * as State from "./internal/breakerState.ts"
import { millisOf } from "./internal/duration.ts"
import { positive } from "./internal/number.ts"
import type { Outcome } from "./Outcome.ts"

/**
 * - `consecutive`: opens after so many failures in a row; default 5. Or
 * - `rate`, `window`, `minimum`: opens at this share of failures in the window, once it holds at least `minimum` calls;
 *   defaults 0.5, 30 seconds, 10.
 * - `openFor`: how long it stays open at first; default 30 seconds. Doubles with every probe that fails, at most
 *   `openAtMost` (default 5 minutes), and varies by 20 % so that many processes do not probe as one.
 * - `rampStep`: how often the number of calls let through doubles after closing; default 1 second.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options {
  readonly consecutive?: number
  readonly rate?: number
  readonly window?: Duration.Input
  readonly minimum?: number
  readonly openFor?: Duration.Input
  readonly openAtMost?: Duration.Input
  readonly rampStep?: Duration.Input
}

/**
 * Leave to make one call; handed back with its outcome.
 *
 * @category models
 * @since 0.1.0
 */
export interface Ticket extends State.Admitted {}

/**
 * A change of state, by outcomes or by hand; `reason` is what the operator gave.
 *
 * @category models
 * @since 0.1.0
 */
export interface Transition {
  readonly from: Position
  readonly to: Position
  readonly openMillis?: number
  readonly reason?: string
}

/**
 * Where a breaker stands. `ForcedOpen` and `ForcedClosed` are an operator's.
 *
 * @category models
 * @since 0.1.0
 */
export type Position = "Closed" | "Open" | "HalfOpen" | "ForcedOpen" | "ForcedClosed"

/**
 * The state of a breaker at a moment.
 *
 * @category models
 * @since 0.1.0
 */
export interface Snapshot {
  readonly position: Position
  readonly retryAfterMillis: number
  readonly reason: string | undefined
}

/**
 * What an operator does to a breaker: hold it open, hold it closed, or forget all it knows. A hold needs a reason, and
 * ends by itself after `for` (default 15 minutes), because a forgotten override is the next outage.
 *
 * @category models
 * @since 0.1.0
 */
export type Override =
  | { readonly _tag: "ForceOpen" | "ForceClosed"; readonly reason: string; readonly for?: Duration.Input }
  | { readonly _tag: "Reset"; readonly reason: string }

/** A probe that runs into its time-out is told a moment after; the lease is for one that is never heard of again. */
const leaseSlackMillis = 1_000

const millis = (option: string, input: Duration.Input): number =>
  positive(`Breaker: ${option} in ms`, millisOf(`Breaker: ${option}`, input, false))

/**
 * A breaker; made by {@link make}. The methods take the monotonic instant and are synchronous.
 *
 * @category models
 * @since 0.1.0
 */
export class Breaker {
  #state: State.BreakerState
  readonly #openMillis: number
  readonly #openAtMostMillis: number
  readonly #rampStepMillis: number
  readonly #random: () => number
  /** Calls that started in the present generation and have not ended. */
  #live = 0
  #reason: string | undefined
  #heldUntilMillis = -Infinity

  constructor(options: Options, random: () => number) {
    this.#openMillis = millis("openFor", options.openFor ?? "30 seconds")
    this.#openAtMostMillis = Math.max(this.#openMillis, millis("openAtMost", options.openAtMost ?? "5 minutes"))
    this.#rampStepMillis = millis("rampStep", options.rampStep ?? "1 second")
    this.#random = random
    const byRate = options.rate !== undefined || options.window !== undefined || options.minimum !== undefined
    if (byRate && options.consecutive !== undefined) {
      throw new RangeError("Breaker: consecutive and rate are two policies, give one of them")
    }
    this.#state = State.make({
      policy: byRate
        ? {
            rate: options.rate ?? 0.5,
            windowMillis: millis("window", options.window ?? "30 seconds"),
            minimum: options.minimum ?? 10
          }
        : { consecutive: options.consecutive ?? 5 },
      openMillis: this.#openMillis,
      probeLeaseMillis: this.#openMillis,
      rampStepMillis: this.#rampStepMillis
    })
  }

  /** When a call that is refused now should come back: when the open time, or the probe's own time, is over. */
  retryAfterMillis(nowMillis: number): number {
    const away = this.closedFor(nowMillis)
    return this.#state._tag === "HalfOpen" && away > 0 ? Math.max(1, away - leaseSlackMillis) : away
  }

  /** How long a call that came now would have to stay away; 0 when it may go on. Takes nothing. */
  closedFor(nowMillis: number): number {
    const state = this.#state
    switch (state._tag) {
      case "Closed":
        return 0
      case "Open":
        return Math.max(0, state.untilMillis - nowMillis)
      case "HalfOpen":
        return Math.max(0, state.leaseUntilMillis - nowMillis)
    }
  }

  /** Leave for one call that is about to start; half-open, it is the probe, on a lease of `leaseMillis`. */
  admit(nowMillis: number, leaseMillis: number): Ticket | undefined {
    const lease = Math.max(1, Math.min(leaseMillis, 3_600_000)) + leaseSlackMillis
    const [answer, state] = State.admit(this.#state, nowMillis, lease)
    this.#move(state)
    if (answer._tag !== "Admitted") return undefined
    this.#live++
    return answer
  }

  /** Tells what became of a call; the transition that it brought about, if any. */
  record(ticket: Ticket, outcome: Outcome, nowMillis: number): Transition | undefined {
    const counted = outcome._tag === "Success" ? "success" : outcome._tag === "Failure" ? "failure" : "ignored"
    if (ticket.generation === this.#state.generation) this.#live--
    const [moved, state] = State.record(this.#state, ticket, counted, nowMillis)
    this.#move(state)
    if (moved === undefined) return undefined
    if (moved.to === "Closed") return { from: "HalfOpen", to: "Closed" }
    const base = Math.min(this.#openAtMostMillis, this.#openMillis * 2 ** (moved.trips - 1))
    const openMillis = base * (0.8 + 0.4 * this.#random())
    this.#move(State.openFor(this.#state, openMillis))
    return { from: moved.from, to: "Open", openMillis }
  }

  /**
   * Whether one more of `limit` calls may start now: none while open, one probe on its lease while half-open, 1, 2, 4 …
   * at once after closing. Calls from before a change of state do not count: they may hang for as long as they like.
   */
  allows(limit: number, nowMillis: number): boolean {
    const state = this.#state
    if (state._tag !== "Closed") return this.closedFor(nowMillis) === 0
    return this.#live < State.allowance(state, nowMillis, limit)
  }

  /** When that changes next by itself; `Infinity` when time alone changes nothing. */
  nextMillis(limit: number, nowMillis: number): number {
    const state = this.#state
    if (state._tag !== "Closed") {
      const away = this.closedFor(nowMillis)
      return away > 0 ? nowMillis + away : Infinity
    }
    if (State.allowance(state, nowMillis, limit) >= limit) return Infinity
    const steps = Math.floor((nowMillis - state.sinceMillis) / this.#rampStepMillis)
    return state.sinceMillis + (steps + 1) * this.#rampStepMillis
  }

  #move(state: State.BreakerState): void {
    if (state.generation !== this.#state.generation) this.#live = 0
    this.#state = state
  }

  override(act: Override, nowMillis: number): Transition {
    if (act.reason.trim() === "") throw new RangeError(`Breaker.override: ${act._tag} needs a reason, got an empty one`)
    const from = this.#position(nowMillis)
    if (act._tag === "Reset") {
      this.#move(State.reset(this.#state, nowMillis))
      this.#heldUntilMillis = -Infinity
      this.#reason = undefined
      return { from, to: "Closed", reason: act.reason }
    }
    const until = nowMillis + millis("for", act.for ?? "15 minutes")
    this.#move((act._tag === "ForceOpen" ? State.forceOpen : State.forceClosed)(this.#state, nowMillis, until))
    this.#heldUntilMillis = until
    this.#reason = act.reason
    return { from, to: act._tag === "ForceOpen" ? "ForcedOpen" : "ForcedClosed", reason: act.reason }
  }

  #position(nowMillis: number): Position {
    const { _tag } = this.#state
    if (nowMillis >= this.#heldUntilMillis || _tag === "HalfOpen") return _tag
    return _tag === "Open" ? "ForcedOpen" : "ForcedClosed"
  }

  snapshot(nowMillis: number): Snapshot {
    return {
      position: this.#position(nowMillis),
      retryAfterMillis: this.retryAfterMillis(nowMillis),
      reason: nowMillis < this.#heldUntilMillis ? this.#reason : undefined
    }
  }
}

/**
 * Makes a breaker; `random` in [0, 1) spreads the open times.
 *
 * **Example** (Open after two failures, closed again by a probe)
 *
 * ```ts
 * import * as Breaker from "espalier/Breaker"
 * import * as Outcome from "espalier/Outcome"
 *
 * const breaker = Breaker.make({ consecutive: 2, openFor: "10 seconds" }, () => 0.5)
 * for (let call = 0; call < 2; call++) breaker.record(breaker.admit(0, 1_000)!, Outcome.failure, 0)
 * console.log(breaker.snapshot(1).position, breaker.closedFor(4_000)) // => Open 6000
 * const probe = breaker.admit(10_000, 1_000)!
 * breaker.record(probe, Outcome.success, 10_500)
 * console.log(breaker.snapshot(10_500).position, breaker.nextMillis(64, 10_500)) // => Closed 11500
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (options: Options, random: () => number): Breaker => new Breaker(options, random)
