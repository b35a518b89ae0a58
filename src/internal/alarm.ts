/**
 * One timer for many due instants.
 *
 * Thousands of waiters each with a timer of their own would cost thousands of timers. Here the due instants stand in a
 * heap and a single fiber sleeps to the earliest. Adding arms it at once, so that a virtual clock sees it; disarming
 * waits for the end of the tick, so that a thousand calls that begin and end within one tick arm one timer.
 * Nothing due, no timer.
 *
 * @internal
 */
import * as Clock from "effect/Clock"
import type * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"
import type * as Scope from "effect/Scope"
import { nowUnsafe } from "../Deadline.ts"
import * as DueHeap from "./dueHeap.ts"

/** Something that is due once; `ring` runs outside any fiber and must not throw. */
export abstract class Bell implements DueHeap.Item {
  dueMillis = Infinity
  dueSequence = 0
  dueIndex = -1
  abstract ring(nowMillis: number): void
}

export class Alarm {
  readonly #heap = DueHeap.make<Bell>()
  readonly #context: Context.Context<never>
  readonly #clock: Clock.Clock
  #timer: Fiber.Fiber<void> | undefined
  #armedFor = Infinity
  #disarming = false

  constructor(context: Context.Context<never>, clock: Clock.Clock) {
    this.#context = context
    this.#clock = clock
  }

  get now(): number {
    return nowUnsafe(this.#clock)
  }

  /** How many bells are set, and whether the timer is armed; for tests that look for leaks. */
  get size(): number {
    return DueHeap.size(this.#heap)
  }
  get armed(): boolean {
    return this.#timer !== undefined
  }

  set(bell: Bell, dueMillis: number): void {
    if (dueMillis === Infinity) return this.unset(bell)
    DueHeap.add(this.#heap, bell, dueMillis)
    if (dueMillis < this.#armedFor) this.#arm(dueMillis)
  }

  unset(bell: Bell): void {
    if (bell.dueIndex < 0) return
    DueHeap.remove(this.#heap, bell)
    if (DueHeap.size(this.#heap) === 0 && this.#timer !== undefined && !this.#disarming) {
      this.#disarming = true
      Effect.runForkWith(this.#context)(
        Effect.andThen(
          Effect.yieldNow,
          Effect.sync(() => {
            this.#disarming = false
            if (DueHeap.size(this.#heap) === 0) this.#disarm()
          })
        )
      )
    }
  }

  close(): void {
    this.#disarm()
  }

  #disarm(): void {
    const timer = this.#timer
    this.#timer = undefined
    this.#armedFor = Infinity
    timer?.interruptUnsafe()
  }

  #arm(dueMillis: number): void {
    this.#disarm()
    this.#armedFor = dueMillis
    this.#timer = Effect.runForkWith(this.#context)(
      // Whole milliseconds, rounded up: a timer that rings a hair early would only be set again, for ever.
      Effect.flatMap(this.#clock.sleep(Duration.millis(Math.max(0, Math.ceil(dueMillis - this.now)))), () =>
        Effect.sync(() => {
          this.#timer = undefined
          this.#armedFor = Infinity
          this.#ring()
        })
      )
    )
  }

  #ring(): void {
    const now = this.now
    for (let bell = DueHeap.popDue(this.#heap, now); bell !== undefined; bell = DueHeap.popDue(this.#heap, now))
      bell.ring(now)
    const next = DueHeap.nextDueMillis(this.#heap)
    if (next < this.#armedFor) this.#arm(next)
  }
}

/** An alarm that is disarmed with the scope. */
export const make: Effect.Effect<Alarm, never, Scope.Scope> = Effect.acquireRelease(
  Effect.contextWith((context: Context.Context<never>) =>
    Clock.clockWith((clock) => Effect.sync(() => new Alarm(context, clock)))
  ),
  (alarm) => Effect.sync(() => alarm.close())
)
