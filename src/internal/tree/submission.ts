/**
 * A task from the moment it is submitted: in the fleet's line, at work as a tree, or parked for later.
 *
 * The root node exists as soon as the task is accepted, so that a deadline or a stop meets it in the line as it would at
 * work. A parked task has no node and holds no budget; resumed, it is a new task that names the old one.
 *
 * @internal
 */
import type * as Context from "effect/Context"
import * as Ancestry from "../../Ancestry.ts"
import * as Deadline from "../../Deadline.ts"
import type * as Gate from "../../Gate.ts"
import type { Priority } from "../../Priority.ts"
import * as Rejected from "../../Rejected.ts"
import type { NodeReport, Report } from "../../Report.ts"
import { type Spend, zero } from "../../Spend.ts"
import { Bell } from "../alarm.ts"
import { root } from "../envelope.ts"
import * as Ledger from "../ledger.ts"
import { Recorder } from "../recorder.ts"
import type { Bounds } from "./bounds.ts"
import type { Definition } from "./definition.ts"
import type { NodeExit } from "./exit.ts"
import { Node } from "./node.ts"
import { Place } from "./place.ts"
import type { Runtime } from "./runtime.ts"
import { shortOf } from "./spawn.ts"
import { Task } from "./task.ts"

export interface Submitted {
  readonly definition: Definition
  readonly input: unknown
  readonly grant: Spend
  readonly deadline: Deadline.Deadline
  readonly priority: Priority
  readonly bounds: Bounds
  readonly context: Context.Context<never>
}

/** What submissions share: the line of tasks, the parked ones, the numbers. */
export interface Desk {
  readonly runtime: Runtime
  readonly line: Gate.Gate
  readonly parked: readonly [Set<Submission>, Set<Submission>, Set<Submission>, Set<Submission>]
  readonly live: Set<Submission>
  nextTask: number
}

export interface Outcome {
  readonly exit: NodeExit
  readonly report: Report
}

/** How many parked tasks are looked at when a place comes free. */
const resumeTries = 64

export class Submission extends Bell {
  readonly #request: Submitted
  readonly #desk: Desk
  readonly #place: Place
  readonly #submittedMillis: number
  readonly tier: Priority
  id: string
  node: Node | undefined
  task: Task | undefined
  /** Whether it has had a place among the tasks that run. */
  hasStarted = false
  onStart: (() => void) | undefined
  #outcome: Outcome | undefined
  readonly #observers = new Set<(outcome: Outcome) => void>()

  constructor(desk: Desk, request: Submitted, now: number) {
    super()
    this.#desk = desk
    this.#request = request
    this.#place = new Place(desk.line, request.priority, now)
    this.#submittedMillis = now
    this.tier = request.priority
    this.id = `task-${desk.nextTask++}`
  }

  get outcome(): Outcome | undefined {
    return this.#outcome
  }
  get isParked(): boolean {
    return this.#desk.parked[this.tier].has(this)
  }

  /** Accepts the task: its grant is taken from the fleet's books, and its root stands in line. */
  accept(now: number): Rejected.Reason | undefined {
    const { runtime, live } = this.#desk
    const { definition, grant, deadline, input } = this.#request
    const leftMillis = Deadline.timeLeft(deadline, now)
    if (leftMillis <= 0 || leftMillis < definition.estimateMillis) {
      return { _tag: "DeadlineExceeded", neededMillis: definition.estimateMillis, leftMillis }
    }
    const short = shortOf(definition, grant, (unit) => Ledger.available(runtime.account, unit), this.id)
    if (short !== undefined) return short
    // The agent's own functions run before anything is opened: one that throws leaves nothing behind.
    const ancestry = Ancestry.extend(undefined, definition.name, definition.identity(input))
    const account = Ledger.delegate(runtime.account, `${this.id}/0`, grant, definition.reserve)
    if (Ledger.isRefusal(account)) return account
    const recorder = new Recorder(this.id, runtime.emit, runtime.retryOwner, runtime.failures)
    const task = new Task(this.id, this.tier, recorder, this.#request.bounds, now)
    task.newId()
    const node = new Node(runtime, task, undefined, definition, input, account, this.#request.context, undefined, now)
    const mayRetry = runtime.retryOwner === "orchestrator" || runtime.retryOwner === "agent"
    const terms = { id: account.id, agent: definition.name, priority: this.tier, deadline, ancestry, mayRetry }
    node.envelope = root(terms, account, node, recorder)
    this.node = node
    this.task = task
    live.add(this)
    runtime.emit({
      _tag: "Spawned",
      atMillis: now,
      task: this.id,
      node: node.id,
      agent: definition.name,
      depth: 0,
      priority: this.tier
    })
    const granted = Ledger.grantOf(account)
    let rootReport: NodeReport | undefined
    node.onReport = (report) => {
      rootReport = report
    }
    node.observe((exit) => {
      this.#leave()
      this.#finish({ exit, report: task.report(rootReport!, granted, runtime.alarm.now) })
    })
    runtime.alarm.set(node, deadline)
    this.#place.take(now, this.#start)
    return undefined
  }

  readonly #start = (now: number): void => {
    this.hasStarted = true
    this.node?.start(now, undefined)
    const { onStart } = this
    this.onStart = undefined
    if (onStart !== undefined) this.#desk.runtime.agenda.add(onStart, undefined)
  }

  #leave(): void {
    const { live, runtime } = this.#desk
    const now = runtime.alarm.now
    live.delete(this)
    this.#place.giveBack(now)
    this.#resumeParked(now)
  }

  /** Work that was parked comes back when there is room and nobody waits: the most important first, then the oldest. */
  #resumeParked(now: number): void {
    const { parked, line, runtime } = this.#desk
    let tries = 0
    for (const tier of parked) {
      for (const next of tier) {
        // What cannot be funded now stays parked and holds nobody else up; the search is bounded.
        if (runtime.draining || !line.hasRoom(now) || tries++ >= resumeTries) return
        next.#resume(now)
      }
    }
  }

  #resume(now: number): boolean {
    const old = this.id
    this.id = `task-${this.#desk.nextTask}`
    if (this.accept(now) !== undefined) {
      this.id = old
      return false
    }
    this.#desk.nextTask++
    this.#desk.parked[this.tier].delete(this)
    this.#desk.runtime.alarm.unset(this)
    this.task!.resumes = old
    return true
  }

  /** Parks the task; it holds nothing while it waits, and its deadline runs on. */
  park(now: number): void {
    const { parked, runtime } = this.#desk
    parked[this.tier].add(this)
    runtime.alarm.set(this, this.#request.deadline)
    runtime.emit({
      _tag: "Ended",
      atMillis: now,
      task: this.id,
      node: `${this.id}/0`,
      agent: this.#request.definition.name,
      state: "Deferred",
      ...zero
    })
  }

  ring(now: number): void {
    this.#endParked({ _tag: "Expired", reason: "its deadline passed while it was deferred" }, now)
  }

  stop(reason: "Interrupted" | "CutOff"): void {
    if (this.isParked) {
      const why = reason === "CutOff" ? "the fleet shut down while it was deferred" : "stopped while it was deferred"
      this.#endParked({ _tag: "Interrupted", reason: why }, this.#desk.runtime.alarm.now)
    } else {
      this.node?.stop(reason)
    }
  }

  #endParked(exit: NodeExit & { readonly reason: string }, now: number): void {
    const { parked, runtime } = this.#desk
    const { definition, grant, bounds } = this.#request
    if (!parked[this.tier].delete(this)) return
    runtime.alarm.unset(this)
    const task = new Task(
      this.id,
      this.tier,
      new Recorder(this.id, runtime.emit, runtime.retryOwner, runtime.failures),
      bounds,
      this.#submittedMillis
    )
    task.newId()
    const report: NodeReport = {
      node: `${this.id}/0`,
      agent: definition.name,
      depth: 0,
      state: exit._tag,
      reason: exit.reason,
      own: zero,
      subtree: zero,
      restarts: 0,
      millis: now - this.#submittedMillis
    }
    task.ended[exit._tag]++
    task.add(report)
    if (runtime.draining && runtime.cutOff.length < 10_000) runtime.cutOff.push(report)
    this.#finish({ exit, report: task.report(report, grant, now) })
  }

  #finish(outcome: Outcome): void {
    this.#outcome = outcome
    const observers = [...this.#observers]
    this.#observers.clear()
    for (const observer of observers) observer(outcome)
  }

  observe(observer: (outcome: Outcome) => void): () => void {
    if (this.#outcome !== undefined) {
      observer(this.#outcome)
      return () => {}
    }
    this.#observers.add(observer)
    return () => this.#observers.delete(observer)
  }
}
