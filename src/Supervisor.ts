/**
 * What becomes of the siblings when a child fails, and how often it may be run again.
 *
 * The words and defaults are OTP's: a *strategy* says who is run again with the one that failed, *intensity* and
 * *period* how many restarts are still recovery and not a loop, *restart* which ends count as failures. Two things
 * differ, because restarting an agent costs money and its siblings' work has value: what a sibling has finished is never
 * thrown away, and a restart is a retry, so it is paid from the same grant within the same deadline, it withdraws from
 * the fleet's retry budget, and only the layer that owns retries does it. Below that layer a supervisor escalates.
 *
 * A refusal (`Rejected`) is never restarted: asking again at once for what was just refused is how storms begin.
 *
 * @stability experimental
 * @since 0.1.0
 */
import type * as Duration from "effect/Duration"
import { millisOf } from "./internal/duration.ts"
import { integer, integerOrInfinity, positive } from "./internal/number.ts"
import * as RestartIntensity from "./internal/restartIntensity.ts"

/**
 * Who is run again when one fails.
 *
 * - `one-for-one` (default): the one that failed.
 * - `one-for-all`: all that are still running; they depend on each other.
 * - `rest-for-one`: it and those started after it; they depend on it.
 *
 * @category models
 * @since 0.1.0
 */
export type Strategy = "one-for-one" | "one-for-all" | "rest-for-one"

/**
 * Which ends lead to a restart.
 *
 * - `permanent`: any end, success too, until it is stopped or the intensity is used up.
 * - `transient` (default): failures and defects.
 * - `temporary`: none.
 *
 * @category models
 * @since 0.1.0
 */
export type Restart = "permanent" | "transient" | "temporary"

/**
 * - `strategy`: default `"one-for-one"`.
 * - `restart`: default `"transient"`.
 * - `intensity`, `period`: at most so many restarts in so long; default 3 in 60 seconds. Beyond it a child ends as
 *   `RestartIntensityExceeded`: alone under one-for-one, with those that depend on it under the others.
 * - `attempts`: how often one child is run in all; default 4. OTP has no such bound, because a process that crashes once an
 *   hour costs nothing; an agent that does costs an hour of tokens each time. `Infinity` for none.
 * - `backoff`: the first wait before a restart; doubles each time, at random between 0 and that (full jitter), at most
 *   10 seconds. Default 200 milliseconds.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options {
  readonly strategy?: Strategy
  readonly restart?: Restart
  readonly intensity?: number
  readonly period?: Duration.Input
  readonly attempts?: number
  readonly backoff?: Duration.Input
}

/**
 * A member of a supervised group: what the group needs to know of a child.
 *
 * @category models
 * @since 0.1.0
 */
export interface Member {
  readonly isLive: boolean
  /** Stops the present run and runs it again. */
  runAgain(): void
  /** Stops it for good. */
  stop(): void
}

/**
 * What the group decided: the members to run again besides the one that failed, in the order of their start; or that
 * it is given up, with the members to stop, the last started first.
 *
 * @category models
 * @since 0.1.0
 */
export type Decision<M extends Member> =
  | { readonly _tag: "Restart"; readonly others: ReadonlyArray<M>; readonly backoffMillis: number }
  | {
      readonly _tag: "GiveUp"
      readonly others: ReadonlyArray<M>
      readonly exceeded: "intensity" | "attempts" | undefined
    }

const maxBackoffMillis = 10_000

/**
 * The children of one parent that are supervised together.
 *
 * @category models
 * @since 0.1.0
 */
export class Group<M extends Member> {
  readonly strategy: Strategy
  readonly restart: Restart
  readonly intensity: number
  readonly periodMillis: number
  readonly attempts: number
  readonly #backoffMillis: number
  /** Whether members depend on each other and one of them was given up: nothing more is started in it. */
  givenUp = false
  #restarts: RestartIntensity.RestartIntensity
  #members: Set<M> | undefined

  constructor(options: Options = {}) {
    this.strategy = options.strategy ?? "one-for-one"
    this.restart = options.restart ?? "transient"
    this.intensity = integer("Supervisor: intensity", options.intensity ?? 3, 0, 1_000_000)
    this.attempts = integerOrInfinity("Supervisor: attempts", options.attempts ?? 4, 1)
    const period = millisOf("Supervisor: period", options.period ?? "60 seconds", false)
    this.periodMillis = positive("Supervisor: period in ms", period)
    this.#backoffMillis = millisOf("Supervisor: backoff", options.backoff ?? "200 millis", false)
    this.#restarts = RestartIntensity.make({ intensity: this.intensity, periodMillis: this.periodMillis })
  }

  /** Only strategies that look at siblings keep them. */
  add(member: M): void {
    if (this.strategy !== "one-for-one") (this.#members ??= new Set()).add(member)
  }

  remove(member: M): void {
    this.#members?.delete(member)
  }

  /** One member failed, for the `attempts`-th time; `allowed` is asked last, when all else speaks for a restart. */
  failed(member: M, attempts: number, now: number, random: number, allowed: () => boolean): Decision<M> {
    const others = this.#dependents(member)
    const giveUp = (exceeded?: "intensity" | "attempts"): Decision<M> => {
      const alone = this.strategy === "one-for-one"
      if (!alone) this.givenUp = true
      return { _tag: "GiveUp", others: alone ? [] : others.reverse(), exceeded }
    }
    if (this.restart === "temporary" || this.intensity === 0 || this.attempts === 1) return giveUp()
    if (attempts >= this.attempts) return giveUp("attempts")
    const [may, restarts] = RestartIntensity.restart(this.#restarts, now)
    if (!may) return giveUp("intensity")
    if (!allowed()) return giveUp()
    this.#restarts = restarts
    return {
      _tag: "Restart",
      others,
      backoffMillis: random * Math.min(maxBackoffMillis, this.#backoffMillis * 2 ** (attempts - 1))
    }
  }

  #dependents(member: M): Array<M> {
    const members = [...(this.#members ?? [])]
    const from = this.strategy === "rest-for-one" ? members.indexOf(member) + 1 : 0
    return members.slice(from).filter((other) => other !== member && other.isLive)
  }
}
