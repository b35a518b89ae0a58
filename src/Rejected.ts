/**
 * The typed "no": the work never ran.
 *
 * A refusal is not a failure of the work. It is cheap, it is safe to try elsewhere or later, and it says nothing
 * about the health of anything downstream. Mixing the two is what makes retries storm and breakers flap, so refusals
 * have an error of their own with a `reason` that code can branch on (`Effect.catchReason`) and numbers that a person
 * or a model can act on. Messages never hold prompts, keys or user data.
 *
 * @stability experimental
 * @since 0.1.0
 */
import * as Duration from "effect/Duration"
import * as Schema from "effect/Schema"

const Millis = Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0))
const Unit = Schema.Literals(["tokens", "microDollars"])

/**
 * Why the work never ran. Times are milliseconds, amounts are tokens or micro-dollars, `node` and `account` are ids of
 * nodes in the tree.
 *
 * - `DeadlineExceeded`: too little time is left (`leftMillis`) for what it needs (`neededMillis`, 0 when past).
 * - `BudgetExceeded`: asked for more than is free at the tightest account on the path; `stopped` when that account was
 *   stopped because a provider reported more than was held.
 * - `Unpriced`: a money limit is set and the call does not say what it may cost.
 * - `BreakerOpen`: the dependency is down.
 * - `QueueFull`: a waiting line is full.
 * - `NeverFits`: costs more than the dependency can ever grant.
 * - `DepthExceeded`, `WidthExceeded`, `DescendantsExceeded`, `SpawnRateExceeded`: a bound of the tree.
 * - `DelegationLoop`: the same agent with the same task is already on the path.
 * - `InvalidInput`: the input does not fit the agent's schema; `issue` names the place, not the value.
 * - `Draining`: the fleet is shutting down or the parent is ending.
 * - `NoEnvelope`: a governed call outside a fleet, or with an envelope that the runtime did not make.
 * - `Nested`: a task was submitted from inside an agent, which would have escaped the agent's budget.
 *
 * @category models
 * @since 0.1.0
 */
export const Reason = Schema.Union([
  Schema.TaggedStruct("DeadlineExceeded", { neededMillis: Millis, leftMillis: Millis }),
  Schema.TaggedStruct("BudgetExceeded", {
    unit: Unit,
    asked: Schema.Finite,
    free: Schema.Finite,
    account: Schema.String,
    stopped: Schema.Boolean
  }),
  Schema.TaggedStruct("Unpriced", { account: Schema.String }),
  Schema.TaggedStruct("BreakerOpen", { dependency: Schema.String, retryAfterMillis: Millis }),
  Schema.TaggedStruct("QueueFull", { queue: Schema.String, capacity: Schema.Finite }),
  Schema.TaggedStruct("NeverFits", {
    dependency: Schema.String,
    rate: Schema.String,
    cost: Schema.Finite,
    capacity: Schema.Finite
  }),
  Schema.TaggedStruct("DepthExceeded", { limit: Schema.Finite }),
  Schema.TaggedStruct("WidthExceeded", { limit: Schema.Finite }),
  Schema.TaggedStruct("DescendantsExceeded", { limit: Schema.Finite }),
  Schema.TaggedStruct("SpawnRateExceeded", { limit: Schema.Finite, retryAfterMillis: Millis }),
  Schema.TaggedStruct("DelegationLoop", { path: Schema.Array(Schema.String) }),
  Schema.TaggedStruct("InvalidInput", { agent: Schema.String, issue: Schema.String }),
  Schema.TaggedStruct("Draining", {}),
  Schema.TaggedStruct("NoEnvelope", { dependency: Schema.String }),
  Schema.TaggedStruct("Nested", { agent: Schema.String })
])

/**
 * Why the work never ran.
 *
 * @category models
 * @since 0.1.0
 */
export type Reason = typeof Reason.Type

/**
 * The error of work that never ran.
 *
 * **Example** (Doing without when the budget is gone)
 *
 * ```ts
 * import { Effect } from "effect"
 * import * as Rejected from "espalier/Rejected"
 *
 * const refused = Effect.fail(
 *   Rejected.make({ _tag: "BudgetExceeded", unit: "tokens", asked: 500, free: 400, account: "task-1/2", stopped: false })
 * )
 * const program = refused.pipe(
 *   Effect.catchReason("Rejected", "BudgetExceeded", (reason) => Effect.succeed(`short of ${reason.asked - reason.free}`))
 * )
 * console.log(Effect.runSync(program)) // => short of 100
 * ```
 *
 * @category errors
 * @since 0.1.0
 */
export class Rejected extends Schema.TaggedError<Rejected>()("Rejected", {
  reason: Reason,
  /** The node that was refused, or whose call was. */
  node: Schema.optionalKey(Schema.String)
}) {
  override get message(): string {
    const at = this.node === undefined ? "" : ` (node ${this.node})`
    return `${describe(this.reason)}${at}`
  }

  /** When asking again makes sense, where that is known. */
  get retryAfter(): Duration.Duration | undefined {
    return "retryAfterMillis" in this.reason ? Duration.millis(this.reason.retryAfterMillis) : undefined
  }
}

/**
 * Makes a refusal without capturing a stack: refusals are frequent exactly when there is no time for them, and where
 * one was raised is in its reason.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (reason: Reason, node?: string): Rejected => {
  const limit = Error.stackTraceLimit
  Error.stackTraceLimit = 0
  try {
    return new Rejected(node === undefined ? { reason } : { reason, node })
  } finally {
    Error.stackTraceLimit = limit
  }
}

/**
 * Whether a value is a refusal.
 *
 * @category predicates
 * @since 0.1.0
 */
export const isRejected = (value: unknown): value is Rejected => value instanceof Rejected

const seconds = (millis: number): string => `${Math.ceil(millis / 100) / 10} s`

/**
 * A reason as one sentence for a person or a model: what was refused, the numbers, and what to do.
 *
 * @category formatting
 * @since 0.1.0
 */
export const describe = (reason: Reason): string => {
  switch (reason._tag) {
    case "DeadlineExceeded":
      return reason.neededMillis === 0
        ? "DeadlineExceeded: the deadline has passed; nothing more can start"
        : `DeadlineExceeded: needs ${seconds(reason.neededMillis)}, ${seconds(reason.leftMillis)} left before the deadline`
    case "BudgetExceeded":
      return reason.stopped
        ? `BudgetExceeded: account ${reason.account} is stopped, because a call used more than it had held`
        : `BudgetExceeded: asked for ${reason.asked} ${reason.unit}, ${reason.free} free in account ${reason.account}`
    case "Unpriced":
      return `Unpriced: account ${reason.account} has a money limit and the call does not say what it may cost; pass microDollars`
    case "BreakerOpen":
      return `BreakerOpen: ${reason.dependency} is down; try again in ${seconds(reason.retryAfterMillis)}`
    case "QueueFull":
      return `QueueFull: ${reason.capacity} are already waiting for ${reason.queue}`
    case "NeverFits":
      return `NeverFits: costs ${reason.cost}, ${reason.dependency} grants at most ${reason.capacity} (${reason.rate}); split the work`
    case "DepthExceeded":
      return `DepthExceeded: agents may be nested ${reason.limit} deep; do the work here instead of delegating`
    case "WidthExceeded":
      return `WidthExceeded: a node may have ${reason.limit} children at once; wait for one to end`
    case "DescendantsExceeded":
      return `DescendantsExceeded: a task may spawn ${reason.limit} agents in all; finish with what there is`
    case "SpawnRateExceeded":
      return `SpawnRateExceeded: a task may spawn ${reason.limit} agents a second; try again in ${seconds(reason.retryAfterMillis)}`
    case "DelegationLoop":
      return `DelegationLoop: ${reason.path.join(" > ")} has the same task again; do the work or change the task`
    case "InvalidInput":
      return `InvalidInput: ${reason.agent}: ${reason.issue}`
    case "Draining":
      return "Draining: shutting down; nothing new starts"
    case "NoEnvelope":
      return `NoEnvelope: ${reason.dependency} was called outside a fleet; run the call in an agent, or make the dependency with standalone: true`
    case "Nested":
      return `Nested: ${reason.agent} was submitted from inside an agent; spawn it as a child, so that it stays within the budget`
  }
}

/**
 * What a model is told instead of a tool's result when the call or the sub-agent was refused.
 *
 * @category models
 * @since 0.1.0
 */
export interface ToolResult {
  readonly refused: true
  readonly reason: Reason["_tag"]
  readonly message: string
  readonly retryAfterSeconds?: number
  readonly remaining: { readonly tokens?: number; readonly microDollars?: number; readonly seconds?: number }
}

/**
 * Renders a refusal as a tool result with the numbers that remain; absent numbers are unlimited.
 *
 * @category formatting
 * @since 0.1.0
 */
export const toToolResult = (self: Rejected, remaining: ToolResult["remaining"] = {}): ToolResult => {
  const retryAfter = self.retryAfter
  return {
    refused: true,
    reason: self.reason._tag,
    message: describe(self.reason),
    remaining,
    ...(retryAfter === undefined ? {} : { retryAfterSeconds: Math.ceil(Duration.toMillis(retryAfter) / 1_000) })
  }
}
