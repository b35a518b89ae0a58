/**
 * The way into the tree: every check that a new node has to pass, then its account, its envelope and its start, in one
 * synchronous step, so that siblings that start together cannot all pass on the same remainder.
 *
 * The order is from what is cheapest and most certain to what commits something: shutting down, input, bounds, loop,
 * time, money. A refusal is an end of a node all the same: it has an id and a line in the report.
 *
 * @internal
 */
import type * as Context from "effect/Context"
import * as Ancestry from "../../Ancestry.ts"
import * as Deadline from "../../Deadline.ts"
import * as Rejected from "../../Rejected.ts"
import { type Spend, zero } from "../../Spend.ts"
import type { Group } from "../../Supervisor.ts"
import { type Envelope, narrow } from "../envelope.ts"
import * as Ledger from "../ledger.ts"
import * as TokenBucket from "../tokenBucket.ts"
import type { Definition } from "./definition.ts"
import { Node } from "./node.ts"
import type { Place } from "./place.ts"

export interface Request {
  readonly definition: Definition
  readonly input: unknown
  readonly grant: Spend | undefined
  readonly deadline: Deadline.Deadline | undefined
  readonly group: Group<Node> | undefined
  /** A place in the fleet that was taken for it already. */
  readonly place: Place | undefined
}

/** The default time that a parent keeps for itself: a tenth of what is left, at most ten seconds. */
const reserveOf = (parent: Node, left: number): number => parent.definition.reserveMillis ?? Math.min(10_000, left / 10)

/** The latest instant for a child of this node: its own deadline less what it keeps for itself. */
export const childDeadline = (parent: Node, under: Envelope, now: number): Deadline.Deadline => {
  const { deadline } = parent.envelope
  if (deadline === Deadline.never) return under.deadline
  const protectedFrom = parent.protectedFrom ?? Deadline.at(Math.max(0, deadline - reserveOf(parent, deadline - now)))
  parent.protectedFrom = protectedFrom
  return Deadline.earlier(under.deadline, protectedFrom)
}

/** Recursion that declares a measure may meet itself again as long as the measure falls. */
const shrinks = (definition: Definition, parent: Node, input: unknown): boolean => {
  if (definition.measure === undefined) return false
  for (let node: Node | undefined = parent; node !== undefined; node = node.parent) {
    if (node.definition === definition) return definition.measure(input) < definition.measure(node.input)
  }
  return true
}

/** What the child gets: as asked, or twice its estimate as far as that is there, or nothing of its own (it draws through). */
const grantOf = (parent: Node, request: Request): Spend => {
  const { definition } = request
  const asked = request.grant ?? definition.grant
  if (asked !== undefined) return asked
  const share = (estimate: number, unit: Ledger.Unit): number =>
    Math.max(estimate, Math.min(2 * estimate, Ledger.available(parent.account, unit)))
  return {
    ...(definition.estimateTokens > 0 ? { tokens: share(definition.estimateTokens, "tokens") } : {}),
    ...(definition.estimateMicroDollars !== undefined && definition.estimateMicroDollars > 0
      ? { microDollars: share(definition.estimateMicroDollars, "microDollars") }
      : {})
  }
}

/** A node that never ran is an end all the same: it gets an id and a line in the report. */
export const refuse = (parent: Node, request: Request, reason: Rejected.Reason): Rejected.Rejected => {
  const { runtime, task } = parent
  const { definition, input } = request
  const id = task.newId()
  const text = Rejected.describe(reason)
  const label = definition.label !== undefined && reason._tag !== "InvalidInput" ? definition.label(input) : undefined
  task.ended.Rejected++
  task.add({
    node: id,
    parent: parent.id,
    agent: definition.name,
    ...(label === undefined ? {} : { label }),
    depth: parent.envelope.depth + 1,
    state: "Rejected",
    reason: text,
    own: zero,
    subtree: zero,
    restarts: 0,
    millis: 0
  })
  runtime.emit({
    _tag: "Ended",
    atMillis: runtime.alarm.now,
    task: task.id,
    node: id,
    agent: definition.name,
    state: "Rejected",
    reason: text,
    ...zero
  })
  return Rejected.make(reason, id)
}

/** Starts a child below `parent`, whose code runs under `envelope`; or says why not, and has then changed nothing. */
export const spawn = (
  parent: Node,
  envelope: Envelope,
  context: Context.Context<never>,
  request: Request
): Node | Rejected.Reason => {
  const { runtime, task } = parent
  const { bounds } = task
  const { definition } = request
  const now = runtime.alarm.now
  if (runtime.draining || parent.isStopping) return { _tag: "Draining" }
  const decoded = definition.decode(request.input)
  if ("issue" in decoded) return { _tag: "InvalidInput", agent: definition.name, issue: decoded.issue }
  const input = decoded.value
  const depth = parent.envelope.depth + 1
  if (depth > bounds.depth) return { _tag: "DepthExceeded", limit: bounds.depth }
  if (parent.childCount >= bounds.width) return { _tag: "WidthExceeded", limit: bounds.width }
  if (task.spawned >= bounds.descendants) return { _tag: "DescendantsExceeded", limit: bounds.descendants }
  const ancestry = Ancestry.extend(parent.envelope.ancestry, definition.name, definition.identity(input))
  const loop = Ancestry.loop(ancestry)
  if (loop !== undefined && !shrinks(definition, parent, input)) return { _tag: "DelegationLoop", path: [...loop] }
  if (!TokenBucket.canTake(task.spawnRate, 1, now)) {
    const retryAfterMillis = TokenBucket.waitMillis(task.spawnRate, 1, now)
    return { _tag: "SpawnRateExceeded", limit: bounds.spawnsPerSecond, retryAfterMillis }
  }
  const latest = childDeadline(parent, envelope, now)
  const deadline = request.deadline === undefined ? latest : Deadline.earlier(latest, request.deadline)
  const leftMillis = Deadline.timeLeft(deadline, now)
  if (leftMillis <= 0 || leftMillis < definition.estimateMillis) {
    return { _tag: "DeadlineExceeded", neededMillis: definition.estimateMillis, leftMillis }
  }
  const grant = grantOf(parent, request)
  const short = belowEstimate(definition, grant, parent)
  if (short !== undefined) return short
  const id = task.newId()
  const account = Ledger.delegate(parent.account, id, grant, definition.reserve)
  if (Ledger.isRefusal(account)) {
    task.takeBackId()
    return account
  }
  TokenBucket.take(task.spawnRate, 1, now)
  task.spawned++
  const node = new Node(
    runtime,
    task,
    parent,
    definition,
    input,
    account,
    context,
    request.group ?? parent.ownGroup,
    now
  )
  node.envelope = narrow(envelope, id, ancestry, deadline, runtime.retryOwner === "agent", account, node)
  const isDuplicate = parent.children.add(node)
  if (runtime.isHeard()) {
    const at = { atMillis: now, task: task.id, node: id, agent: definition.name }
    runtime.emit({ _tag: "Spawned", ...at, parent: parent.id, depth, priority: task.priority })
    if (isDuplicate) runtime.emit({ _tag: "DuplicateSibling", ...at })
  }
  node.start(now, request.place)
  return node
}

/** The unit of which there is less than the estimate. */
export const shortOf = (
  definition: Definition,
  grant: Spend,
  available: (unit: Ledger.Unit) => number,
  account: string
): Rejected.Reason | undefined => {
  const estimates = [
    ["tokens", definition.estimateTokens],
    ["microDollars", definition.estimateMicroDollars ?? 0]
  ] as const
  for (const [unit, asked] of estimates) {
    const free = grant[unit] ?? available(unit)
    if (free < asked) return { _tag: "BudgetExceeded", unit, asked, free, account, stopped: false }
  }
  return undefined
}

/** A grant below the estimate would only fail later, after it had been spent. */
const belowEstimate = (definition: Definition, grant: Spend, parent: Node): Rejected.Reason | undefined => {
  return shortOf(definition, grant, (unit) => Ledger.available(parent.account, unit), parent.id)
}
