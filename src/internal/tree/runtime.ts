/**
 * What all trees of a fleet share: the clock and its one timer, the places, the agenda, the books, the retry budget.
 *
 * @internal
 */
import type * as Context from "effect/Context"
import type { Event } from "../../Event.ts"
import type * as Gate from "../../Gate.ts"
import type { NodeReport } from "../../Report.ts"
import type { RetryBudget } from "../../RetryBudget.ts"
import type { Alarm } from "../alarm.ts"
import type { CommonFailures } from "../commonFailure.ts"
import type { Account } from "../ledger.ts"
import type { RetryOwner } from "../recorder.ts"
import type { Agenda } from "./agenda.ts"

export interface Runtime {
  readonly context: Context.Context<never>
  readonly alarm: Alarm
  readonly places: Gate.Gate
  readonly agenda: Agenda
  readonly account: Account
  readonly retries: RetryBudget
  readonly retryOwner: RetryOwner
  readonly failures: CommonFailures
  readonly random: () => number
  readonly emit: (event: Event) => void
  /** Whether anybody reads events; nobody does most of the time, and an event costs more than its node's end. */
  readonly isHeard: () => boolean
  draining: boolean
  live: number
  /** What a shutdown cut off, by name; at most 10 000 are kept. */
  readonly cutOff: Array<NodeReport>
}
