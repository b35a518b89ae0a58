/**
 * A dependency's waiting line, slots and rate buckets, decided together.
 *
 * A call waits for one thing only: its turn. When its turn comes, its slot and its share of every rate are granted in
 * one step, so that nothing is held by a call that waits for something else. The line is bounded; its order is by tier,
 * in shares of 8:4:2:1, and by arrival inside a tier; a call older than the age bound goes next whatever its tier.
 *
 * State: `new -> waiting -> granted -> ended`, or `new -> granted` when nobody waits. Sits after the breaker and before
 * the work. Never retries, knows no budget and no deadline: whoever waits sets a bell of its own and cancels.
 *
 * Units: slots, requests, tokens, milliseconds. A free slot costs nothing to wait for; entering costs O(log n), leaving
 * the line O(1), and one timer is armed while the head waits for a rate, none otherwise.
 *
 * **Errors** `QueueFull` and `NeverFits`, as entries that the caller turns into `Rejected`.
 *
 * Follows Kubernetes' priority and fairness (line), Netflix' limiter (slots), x/time/rate (buckets).
 *
 * @stability experimental
 * @since 0.1.0
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as alarm from "./internal/alarm.ts"
import * as Machine from "./internal/gateMachine.ts"
import { integer } from "./internal/number.ts"
import * as TokenBucket from "./internal/tokenBucket.ts"
import type { Limit } from "./Limit.ts"
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
}

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
  readonly #waker: Waker
  #advancing = false

  constructor(options: Options, clockAlarm: alarm.Alarm) {
    const now = clockAlarm.now
    this.alarm = clockAlarm
    this.#waker = new Waker(this)
    this.#machine = Machine.make<Ticket>({
      limit: options.limit.limit,
      capacity: integer("Gate.make: queue", options.queue ?? 1_000, 0, 10_000_000),
      rates: (options.rates ?? []).map((rate) => ({
        name: rate.name,
        unit: rate.unit,
        bucket: TokenBucket.make({ ratePerSecond: rate.perSecond, capacity: rate.burst }, now)
      })),
      line: { ageBoundMillis: Duration.toMillis(Duration.fromInputUnsafe(options.maxAge ?? "60 seconds")) }
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

  leave(ticket: Ticket, usedTokens: number | undefined, nowMillis: number): void {
    Machine.leave(this.#machine, ticket, usedTokens, nowMillis)
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
      let next = Machine.advance(this.#machine, nowMillis)
      while (next !== undefined) {
        next.granted(nowMillis)
        next = Machine.advance(this.#machine, nowMillis)
      }
    } finally {
      this.#advancing = false
    }
    this.#wake(nowMillis)
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
    this.alarm.set(this.#waker, at)
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
 * Makes a gate whose timer lives in the scope.
 *
 * **Errors** a `RangeError` for an option out of range.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (options: Options): Effect.Effect<Gate, never, Scope.Scope> =>
  Effect.map(alarm.make, (clockAlarm) => new Gate(options, clockAlarm))
