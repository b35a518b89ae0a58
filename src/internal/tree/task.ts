/**
 * One tree while it lives: its counters, its bounds, and the report that it becomes.
 *
 * @internal
 */
import type { State } from "../../Event.ts"
import type { Priority } from "../../Priority.ts"
import type { NodeReport, Report } from "../../Report.ts"
import type { Recorder } from "../recorder.ts"
import * as TokenBucket from "../tokenBucket.ts"
import type { Bounds } from "./bounds.ts"

/** Enough for a person to read and a program to page; a million-node tree must not become a million-line report. */
const nodesKept = 10_000

/** No node has ended yet. */
export const noneEnded = (): Record<State, number> => ({
  Completed: 0,
  Partial: 0,
  Failed: 0,
  Interrupted: 0,
  Rejected: 0,
  Deferred: 0,
  DeadLettered: 0,
  Expired: 0
})

export class Task {
  readonly id: string
  readonly priority: Priority
  readonly recorder: Recorder
  readonly bounds: Bounds
  readonly startedMillis: number
  readonly spawnRate: TokenBucket.TokenBucket
  readonly ended = noneEnded()
  readonly #nodes: Array<NodeReport> = []
  readonly #unfinished: Array<NodeReport> = []
  /** The deferred task that this one resumes. */
  resumes: string | undefined
  nextNode = 0
  spawned = 0
  maxDepth = 0
  omitted = 0

  constructor(id: string, priority: Priority, recorder: Recorder, bounds: Bounds, now: number) {
    this.id = id
    this.priority = priority
    this.recorder = recorder
    this.bounds = bounds
    this.startedMillis = now
    this.spawnRate = TokenBucket.make({ ratePerSecond: bounds.spawnsPerSecond, capacity: bounds.spawnBurst }, now)
  }

  get live(): number {
    let ended = 0
    for (const count of Object.values(this.ended)) ended += count
    return this.nextNode - ended
  }

  newId(): string {
    return `${this.id}/${this.nextNode++}`
  }

  /** The node of the last id was not made after all. */
  takeBackId(): void {
    this.nextNode--
  }

  /** Whether the report still has room for nodes. */
  get keeps(): boolean {
    return this.#nodes.length < nodesKept || this.#unfinished.length < nodesKept
  }

  /** Lists a node that ended; it is counted in `ended` by whoever ended it. */
  add(node: NodeReport): void {
    if (node.depth > this.maxDepth && node.state !== "Rejected") this.maxDepth = node.depth
    if (this.#nodes.length < nodesKept) this.#nodes.push(node)
    else this.omitted++
    if (node.state !== "Completed" && this.#unfinished.length < nodesKept) this.#unfinished.push(node)
  }

  report(root: NodeReport, granted: Report["granted"], now: number): Report {
    const { recorder } = this
    return {
      task: this.id,
      agent: root.agent,
      ...(this.resumes === undefined ? {} : { resumes: this.resumes }),
      priority: this.priority,
      state: root.state,
      ...(root.reason === undefined ? {} : { reason: root.reason }),
      granted,
      subtree: root.subtree,
      nodes: this.nextNode,
      ended: { ...this.ended },
      calls: recorder.calls,
      throttled: recorder.throttled,
      retries: recorder.retries,
      estimated: recorder.estimated,
      maxInFlight: recorder.maxInFlight,
      maxDepth: this.maxDepth,
      millis: now - this.startedMillis,
      retryTree: [...recorder.attempts].map(([layer, { first, again }]) => ({
        layer,
        first,
        again,
        factor: first === 0 ? 1 : (first + again) / first
      })),
      unfinished: [...this.#unfinished],
      nodeReports: [...this.#nodes],
      omitted: this.omitted
    }
  }
}
