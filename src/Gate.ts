/**
 * A dependency's waiting line, slots and rate buckets, decided together.
 *
 * A call waits for one thing only: its turn. When its turn comes, its slot and its share of every rate are granted in
 * one step, so that nothing is held by a call that waits for something else. The line is bounded; its order is by tier,
 * in shares of 8:4:2:1, and inside a tier trees that have begun before new ones, then by deadline; a call older than the age bound goes next whatever its tier.
 *
 * State: `new -> waiting -> granted -> ended`, or `new -> granted` when nobody waits. Sits after the breaker and before
 * the work. Never retries, knows no budget and no deadline: whoever waits sets a bell of its own and cancels.
 *
 * Units: slots, requests, tokens, milliseconds. A free slot costs nothing to wait for; entering costs O(log n), leaving
 * the line O(1), and one timer is armed while the head waits for a rate, none otherwise.
 *
 * **Errors** `QueueFull`, `NeverFits` and `TooLate`, as entries that the caller turns into `Rejected`.
 *
 * Follows Kubernetes' priority and fairness (line), Netflix' limiter (slots), x/time/rate (buckets).
 *
 * @stability experimental
 * @since 0.1.0
 */
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as AdaptiveLimit from "./internal/adaptiveLimit.ts"
import * as alarm from "./internal/alarm.ts"
import { millisOf } from "./internal/duration.ts"
import * as Machine from "./internal/gateMachine.ts"
import { integer } from "./internal/number.ts"
import * as TokenBucket from "./internal/tokenBucket.ts"
import type { Limit } from "./Limit.ts"
import type { Outcome } from "./Outcome.ts"
import type { Rate } from "./Rate.ts"

/**
 * - `limit`: calls at once.
 * - `rates`: default none.
 * - `queue`: how many may wait; default 1 000, an integer from 0 to 10 000 000. About ten minutes of work of a gate
 *   that takes two a second: a longer line only waits for its deadlines.
 * - `maxAge`: after so long in line a call goes next, whatever its tier; default 60 seconds.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options {
  readonly limit: Limit
  readonly rates?: ReadonlyArray<Rate>
  readonly queue?: number
  readonly maxAge?: Duration.Input
}

/**
 * The state of a gate at a moment: `waiting` counts by tier, `zombies` are calls that keep a slot although nobody waits
 * for them any more, `pausedMillis` is how long nobody may start.
 *
 * @category models
 * @since 0.1.0
 */
export interface Snapshot {
  /** Slots; of an adaptive limit, at this moment. */
  readonly limit: number
  readonly inFlight: number
  readonly zombies: number
  readonly waiting: readonly [number, number, number, number]
  readonly queue: number
  readonly pausedMillis: number
  readonly rates: ReadonlyArray<{ readonly name: string; readonly level: number; readonly burst: number }>
}

/**
 * One call's place in the line and in the slots. `granted` is told once, from the gate, when its turn has come.
 *
 * @category models
 * @since 0.1.0
 */
export interface Ticket extends Machine.Ticket {
  granted(nowMillis: number): void
  /** Told once, in the place of `granted`, when the rates were lowered below what it costs. */
  unfit?(entry: Machine.Unfit, nowMillis: number): void
}

/**
 * A second bound on slots that moves with time.
 *
 * @category models
 * @since 0.1.0
 */
export interface Ceiling extends Machine.Ceiling {}

class Waker extends alarm.Bell {
  readonly gate: Gate
  constructor(gate: Gate) {
    super()
    this.gate = gate
  }
  ring(nowMillis: number): void {
    this.gate.advance(nowMillis)
  }
}

/**
 * A gate; made by {@link make}. The methods take the monotonic instant and are synchronous: a decision is never
 * interrupted half way.
 *
 * @category models
 * @since 0.1.0
 */
export class Gate {
  /** The one timer of the gate; also rings for those who wait in its line. */
  readonly alarm: alarm.Alarm
  zombies = 0
  readonly #machine: Machine.Machine<Ticket>
  readonly #adaptive: AdaptiveLimit.AdaptiveLimit | undefined
  readonly #waker: Waker
  #advancing = false

  constructor(options: Options, clockAlarm: alarm.Alarm, ceiling?: Ceiling) {
    const now = clockAlarm.now
    this.alarm = clockAlarm
    this.#waker = new Waker(this)
    const { limit } = options
    this.#adaptive = limit._tag === "Adaptive" ? AdaptiveLimit.make(limit) : undefined
    this.#machine = Machine.make<Ticket>({
      limit: limit._tag === "Adaptive" ? limit.initial : limit.limit,
      ceiling,
      capacity: integer("Gate.make: queue", options.queue ?? 1_000, 0, 10_000_000),
      rates: (options.rates ?? []).map((rate) => ({
        name: rate.name,
        unit: rate.unit,
        bucket: TokenBucket.make({ ratePerSecond: rate.perSecond, capacity: rate.burst }, now)
      })),
      line: { ageBoundMillis: millisOf("Gate.make: maxAge", options.maxAge ?? "60 seconds") }
    })
  }

  /** Whether any rate counts tokens, so that a call's cost in the line is its tokens. */
  get countsTokens(): boolean {
    return this.#machine.rates.some((rate) => rate.unit === "tokens")
  }

  enter(ticket: Ticket, nowMillis: number, latestMillis: number): Machine.Entry {
    const entry = Machine.enter(this.#machine, ticket, nowMillis, latestMillis)
    if (entry._tag === "Waiting") this.#wake(nowMillis)
    return entry
  }

  /** Whether a call would start at once. */
  hasRoom(nowMillis: number): boolean {
    const { limit, inFlight, pausedUntilMillis, line } = this.#machine
    return inFlight < limit && line.size === 0 && nowMillis >= pausedUntilMillis
  }

  /** Whether nobody more may wait. */
  get isFull(): boolean {
    return this.#machine.line.size >= this.#machine.capacity
  }

  cancel(ticket: Ticket, nowMillis: number): void {
    Machine.cancel(this.#machine, ticket)
    this.#wake(nowMillis)
  }

  /** Gives the slot back and puts the truth in the place of the tokens charged; lets nobody in yet. */
  settle(ticket: Ticket, usedTokens: number | undefined, nowMillis: number): void {
    Machine.leave(this.#machine, ticket, usedTokens, nowMillis)
  }

  /** Settles, and lets in who may run now. */
  leave(ticket: Ticket, usedTokens: number | undefined, nowMillis: number): void {
    this.settle(ticket, usedTokens, nowMillis)
    this.advance(nowMillis)
  }

  /** An adaptive limit learns from a call that began at `startedMillis`, while it still has its slot. */
  learn(outcome: Outcome, startedMillis: number, nowMillis: number): void {
    const adaptive = this.#adaptive
    if (adaptive === undefined || outcome._tag === "Ignored") return
    if (outcome._tag === "Success") AdaptiveLimit.succeeded(adaptive, startedMillis, this.#machine.inFlight, nowMillis)
    else if (outcome._tag === "Throttled") AdaptiveLimit.dropped(adaptive, startedMillis, nowMillis)
    this.#machine.limit = AdaptiveLimit.limit(adaptive)
  }

  /** A call ran into its time-out: lost, as far as the limit can tell. */
  lost(startedMillis: number, nowMillis: number): void {
    if (this.#adaptive === undefined) return
    AdaptiveLimit.dropped(this.#adaptive, startedMillis, nowMillis)
    this.#machine.limit = AdaptiveLimit.limit(this.#adaptive)
  }

  /** The first token of a call that began at `startedMillis` has come. */
  firstToken(startedMillis: number, nowMillis: number): void {
    if (this.#adaptive === undefined) return
    AdaptiveLimit.firstToken(this.#adaptive, startedMillis, nowMillis)
    this.#machine.limit = AdaptiveLimit.limit(this.#adaptive)
  }

  /** What the provider says is left: the bucket of that unit is lowered to it, and waits for its reset when nothing is. */
  advise(unit: Rate["unit"], remaining: number, resetMillis: number | undefined, nowMillis: number): void {
    for (const rate of this.#machine.rates) {
      if (rate.unit !== unit) continue
      const level = TokenBucket.level(rate.bucket, nowMillis)
      if (remaining < level) TokenBucket.reconcile(rate.bucket, 0, level - remaining, nowMillis)
      if (remaining <= 0 && resetMillis !== undefined)
        TokenBucket.pauseUntil(rate.bucket, nowMillis + resetMillis, nowMillis)
    }
    this.#wake(nowMillis)
  }

  /** Another limit or other rates from now on, while calls run and wait; a rate keeps its level, as far as it fits. */
  reconfigure(change: { readonly limit?: number; readonly rates?: ReadonlyArray<Rate> }, nowMillis: number): void {
    if (change.limit !== undefined) {
      if (this.#adaptive !== undefined) throw new RangeError("Gate.reconfigure: limit is adaptive and moves by itself")
      this.#machine.limit = integer("Gate.reconfigure: limit", change.limit, 1, 1_000_000)
    }
    if (change.rates !== undefined) {
      const { rates } = this.#machine
      if (
        change.rates.length !== rates.length ||
        change.rates.some((rate, index) => rate.unit !== rates[index]!.unit)
      ) {
        throw new RangeError(
          `Gate.reconfigure: rates must be ${rates.length} of the same units, got ${change.rates.length}`
        )
      }
      for (const [index, rate] of change.rates.entries()) {
        TokenBucket.reconfigure(
          rates[index]!.bucket,
          { ratePerSecond: rate.perSecond, capacity: rate.burst },
          nowMillis
        )
      }
    }
    this.advance(nowMillis)
  }

  pause(untilMillis: number, nowMillis: number): void {
    Machine.pause(this.#machine, untilMillis)
    this.#wake(nowMillis)
  }

  /** Grants all that may run now. A call that ends while it is being granted does not recurse. */
  advance(nowMillis: number): void {
    if (this.#advancing) return
    this.#advancing = true
    try {
      for (let next = this.#next(nowMillis); next !== undefined; next = this.#next(nowMillis)) next.granted(nowMillis)
    } finally {
      this.#advancing = false
    }
    this.#wake(nowMillis)
  }

  #next(nowMillis: number): Ticket | undefined {
    const machine = this.#machine
    if (machine.rates.length > 0) {
      for (let out = Machine.misfit(machine, nowMillis); out !== undefined; out = Machine.misfit(machine, nowMillis))
        out.ticket.unfit?.(out.entry, nowMillis)
    }
    return Machine.advance(machine, nowMillis)
  }

  snapshot(nowMillis: number): Snapshot {
    const machine = this.#machine
    return {
      limit: machine.limit,
      inFlight: machine.inFlight,
      zombies: this.zombies,
      waiting: Machine.waitingByTier(machine),
      queue: machine.capacity,
      pausedMillis: Math.max(0, machine.pausedUntilMillis - nowMillis),
      rates: machine.rates.map(({ name, bucket }) => ({
        name,
        level: TokenBucket.level(bucket, nowMillis),
        burst: bucket.capacity
      }))
    }
  }

  #wake(nowMillis: number): void {
    const at = Machine.wakeAt(this.#machine, nowMillis)
    if (at === this.#waker.dueMillis && this.#waker.dueIndex >= 0) return
    // A head that fits neither now nor by waiting must not wake the gate again and again.
    this.alarm.set(this.#waker, at > nowMillis ? at : nowMillis + 1)
  }
}

/**
 * The cost of a call in the line: its tokens where a rate counts tokens, else 1.
 *
 * @category getters
 * @since 0.1.0
 */
export const costOf = (gate: Gate, tokens: number): number => (gate.countsTokens ? Math.max(1, tokens) : 1)

/**
 * Makes a gate whose timer lives in the scope; `ceiling` bounds its slots further, as a breaker does.
 *
 * **Errors** a `RangeError` for an option out of range.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (options: Options, ceiling?: Ceiling): Effect.Effect<Gate, never, Scope.Scope> =>
  Effect.map(alarm.make, (clockAlarm) => new Gate(options, clockAlarm, ceiling))
