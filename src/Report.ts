/**
 * What a tree did, what it cost, and what it could not finish, node by node.
 *
 * Every number has one scope, named in its field: `own` is the node alone, `subtree` the node with all below it, so
 * tokens and money never mean different things.
 *
 * @stability experimental
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { State } from "./Event.ts"
import { Priority } from "./Priority.ts"
import { Spend } from "./Spend.ts"

const Amount = Schema.Struct({ tokens: Schema.Int, microDollars: Schema.Int })

/**
 * One node: how it ended, why, and what it cost. `label` is what the agent's `label` option says of its input.
 *
 * @category models
 * @since 0.1.0
 */
export const NodeReport = Schema.Struct({
  node: Schema.String,
  parent: Schema.optionalKey(Schema.String),
  agent: Schema.String,
  label: Schema.optionalKey(Schema.String),
  depth: Schema.Int,
  state: State,
  reason: Schema.optionalKey(Schema.String),
  own: Amount,
  subtree: Amount,
  restarts: Schema.Int,
  millis: Schema.Finite
})

/**
 * One node of a report.
 *
 * @category models
 * @since 0.1.0
 */
export interface NodeReport extends Schema.Schema.Type<typeof NodeReport> {}

/**
 * What one layer tried: first attempts, further ones, and how many attempts that makes of one (`factor`).
 *
 * @category models
 * @since 0.1.0
 */
export const RetryLayer = Schema.Struct({
  layer: Schema.String,
  first: Schema.Int,
  again: Schema.Int,
  factor: Schema.Finite
})

/**
 * The report of one task.
 *
 * - `retryTree`: what each layer tried again, from the agents down to the wire.
 * - `granted` (absent = unlimited), `subtree`: the budget of the task and what the whole tree spent of it.
 * - `ended`: nodes by how they ended; they add up to `nodes`.
 * - `calls`: governed calls that ran; `throttled`: answers that asked for less; `estimated`: calls of which the truth
 *   never came, charged at their hold; `retries`: restarts of agents; `maxInFlight`: calls at once; `maxDepth`.
 * - `unfinished`: the nodes that did not complete, each with its reason; at most 10 000 of them and of
 *   `nodeReports` are kept, `omitted` counts the rest.
 *
 * @category models
 * @since 0.1.0
 */
export const Report = Schema.Struct({
  task: Schema.String,
  agent: Schema.String,
  /** The task that was deferred and that this one resumed. */
  resumes: Schema.optionalKey(Schema.String),
  priority: Priority,
  state: State,
  reason: Schema.optionalKey(Schema.String),
  granted: Spend,
  subtree: Amount,
  nodes: Schema.Int,
  ended: Schema.Record(State, Schema.Int),
  calls: Schema.Int,
  throttled: Schema.Int,
  retries: Schema.Int,
  estimated: Schema.Int,
  maxInFlight: Schema.Int,
  maxDepth: Schema.Int,
  millis: Schema.Finite,
  retryTree: Schema.Array(RetryLayer),
  unfinished: Schema.Array(NodeReport),
  nodeReports: Schema.Array(NodeReport),
  omitted: Schema.Int
})

/**
 * The report of one task.
 *
 * @category models
 * @since 0.1.0
 */
export interface Report extends Schema.Schema.Type<typeof Report> {}

/**
 * Renders a report as a few lines of plain text: the head, how nodes ended, and the reasons of what is unfinished, most
 * frequent first.
 *
 * @category formatting
 * @since 0.1.0
 */
export const format = (self: Report): string => {
  const granted = self.granted.tokens === undefined ? "no token limit" : `${self.granted.tokens} granted`
  const ended = Object.entries(self.ended).filter(([, count]) => count > 0)
  const reasons = new Map<string, number>()
  for (const node of self.unfinished) {
    const reason = `${node.state}${node.reason === undefined ? "" : `: ${node.reason}`}`
    reasons.set(reason, (reasons.get(reason) ?? 0) + 1)
  }
  const lines = [
    `${self.agent} (${self.task}, tier ${self.priority}): ${self.state}${self.reason === undefined ? "" : `, ${self.reason}`}`,
    `  spent ${self.subtree.tokens} tokens (${granted}), $${(self.subtree.microDollars / 1e6).toFixed(4)}, in ${(self.millis / 1000).toFixed(1)} s`,
    `  ${self.nodes} nodes, ${self.maxDepth + 1} deep: ${ended.map(([state, count]) => `${count} ${state}`).join(", ")}`,
    `  ${self.calls} calls (${self.throttled} throttled, ${self.estimated} estimated), ${self.retries} restarts, at most ${self.maxInFlight} in flight`
  ]
  for (const [reason, count] of [...reasons].sort((a, b) => b[1] - a[1]).slice(0, 10))
    lines.push(`  ${count} x ${reason}`)
  if (self.omitted > 0) lines.push(`  (${self.omitted} nodes not listed)`)
  return lines.join("\n")
}

/**
 * Renders the retry tree: each layer with its attempts, and what they multiply to if the layers stand on each other.
 *
 * @category formatting
 * @since 0.1.0
 */
export const formatRetryTree = (self: Report): string => {
  const lines = self.retryTree.map(
    ({ layer, first, again, factor }) => `  ${layer}: ${first} first, ${again} again, x ${factor.toFixed(2)}`
  )
  const product = self.retryTree.reduce((all, { factor }) => all * factor, 1)
  return [`retries of ${self.task}: at most x ${product.toFixed(2)} attempts`, ...lines].join("\n")
}
