/**
 * Does what the tree has to do next, one item after the other, and never one inside the other.
 *
 * Ending a node may end its parent, whose end may resume its own parent, and so on to the root; stopping goes the same
 * way down. Done by calls inside calls, a deep tree overflows the native stack and a wide one holds the event loop for
 * as long as it takes. Here every such move is put on the agenda: whoever adds to it while it runs returns at once, and
 * after a slice of time the rest waits for the next turn of the event loop.
 *
 * @internal
 */
import type * as Clock from "effect/Clock"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import { nowUnsafe } from "../../Deadline.ts"

/** Long enough to be efficient, short enough that I/O and timers are not felt to wait. */
const sliceMillis = 8
/** In items of the list, two to a move. */
const checkEvery = 64

export class Agenda {
  readonly #context: Context.Context<never>
  readonly #clock: Clock.Clock
  // Pairs of a move and what it moves: a closure for each would be most of what a spawn allocates.
  #items: Array<unknown> = []
  #next = 0
  #running = false
  #scheduled = false

  constructor(context: Context.Context<never>, clock: Clock.Clock) {
    this.#context = context
    this.#clock = clock
  }

  get size(): number {
    return (this.#items.length - this.#next) / 2
  }

  /** Makes the move now, or after what is already on the agenda. */
  add<T>(move: (item: T) => void, item: T): void {
    this.#items.push(move, item)
    if (!this.#running && !this.#scheduled) this.#run()
  }

  #run(): void {
    this.#running = true
    const started = nowUnsafe(this.#clock)
    try {
      while (this.#next < this.#items.length) {
        const move = this.#items[this.#next] as (item: unknown) => void
        const item = this.#items[this.#next + 1]
        this.#next += 2
        move(item)
        if (this.#next % checkEvery === 0 && nowUnsafe(this.#clock) - started > sliceMillis) break
      }
    } finally {
      this.#running = false
      if (this.#next === this.#items.length) {
        this.#items = []
        this.#next = 0
      } else {
        this.#schedule()
      }
    }
  }

  #schedule(): void {
    this.#scheduled = true
    Effect.runForkWith(this.#context)(
      Effect.andThen(
        Effect.yieldNow,
        Effect.sync(() => {
          this.#scheduled = false
          this.#run()
        })
      )
    )
  }
}
