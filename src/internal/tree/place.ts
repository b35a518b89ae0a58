/**
 * One place in a line of the fleet: the line of agents whose code may run, or the line of tasks that may start.
 *
 * A place is taken, given back while its holder waits for others, and taken again before newcomers. Whoever holds the
 * object holds the place, so it can be handed from the one who waited for it to the one who uses it.
 *
 * @internal
 */
import type * as Gate from "../../Gate.ts"
import type { Priority } from "../../Priority.ts"

export class Place implements Gate.Ticket {
  readonly tier: Priority
  readonly cost = 1
  order = 0
  enqueuedMillis: number
  readonly needsSlot = true
  readonly tokens = 0
  ticket = 0
  state: "new" | "waiting" | "granted" | "ended" = "new"
  readonly #gate: Gate.Gate
  #onGranted: ((nowMillis: number) => void) | undefined

  constructor(gate: Gate.Gate, tier: Priority, now: number) {
    this.#gate = gate
    this.tier = tier
    this.enqueuedMillis = now
  }

  get isHeld(): boolean {
    return this.state === "granted"
  }

  /** Calls back once the place is taken, at once if there is room; `false` when the line is full. */
  take(now: number, onGranted: (nowMillis: number) => void, beforeNewcomers: boolean = false): boolean {
    this.state = "new"
    this.order = beforeNewcomers ? -1 : 0
    this.enqueuedMillis = now
    this.#onGranted = onGranted
    const entry = this.#gate.enter(this, now, Infinity)
    if (entry._tag === "Granted") this.granted(now)
    return entry._tag === "Granted" || entry._tag === "Waiting"
  }

  granted(now: number): void {
    const onGranted = this.#onGranted
    this.#onGranted = undefined
    onGranted?.(now)
  }

  /** Leaves the line or gives the place back; nothing to do when it is neither waited for nor held. */
  giveBack(now: number): void {
    this.#onGranted = undefined
    if (this.state === "waiting") this.#gate.cancel(this, now)
    else if (this.state === "granted") this.#gate.leave(this, undefined, now)
  }
}
