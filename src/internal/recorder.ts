/**
 * The counters of one task and its way to the event buffer. One object per task, written by every floor above and read
 * only when a report or a snapshot is made, so that counting costs an increment.
 *
 * @internal
 */
import type { Event } from "../Event.ts"
import type { Attempts } from "./attempts.ts"
import type { CommonFailures } from "./commonFailure.ts"

/** Which layer of a tree tries again; everybody else fails at once. */
export type RetryOwner = "orchestrator" | "agent" | "call" | "nobody"

export class Recorder {
  calls = 0
  throttled = 0
  retries = 0
  estimated = 0
  inFlight = 0
  maxInFlight = 0
  waiting = 0
  /** Settled so far, of the whole tree. */
  spentTokens = 0
  spentMicroDollars = 0
  readonly attempts: Attempts = new Map()

  readonly task: string
  readonly emit: (event: Event) => void
  readonly retryOwner: RetryOwner
  /** Shared by all tasks of a fleet. */
  readonly failures: CommonFailures

  constructor(task: string, emit: (event: Event) => void, retryOwner: RetryOwner, failures: CommonFailures) {
    this.task = task
    this.emit = emit
    this.retryOwner = retryOwner
    this.failures = failures
  }

  enter(): void {
    this.calls++
    if (++this.inFlight > this.maxInFlight) this.maxInFlight = this.inFlight
  }

  leave(): void {
    this.inFlight--
  }
}
