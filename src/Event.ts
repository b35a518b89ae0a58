/**
 * What happened, as data. Machinery decides and says so here; windows, logs and tests only ever read these.
 *
 * Events leave sideways through a bounded, sliding buffer: a slow reader loses the oldest and can never hold the fleet
 * back. They carry ids, names and numbers, never inputs, prompts or results.
 *
 * Units: `atMillis` is the fleet's monotonic clock in milliseconds; tokens and micro-dollars are whole numbers.
 *
 * @stability experimental
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { Priority } from "./Priority.ts"

/**
 * How a node ended; every node ends in exactly one of these.
 *
 * - `Completed`: with its output, checked where a check was declared.
 * - `Partial`: right as far as it goes; cut short by time, budget or an interruption after it had published something.
 * - `Failed`: with its own error, a defect, or given up by supervision.
 * - `Interrupted`: its parent, a rival or a person stopped it.
 * - `Rejected`: never ran.
 * - `Deferred`: parked for later.
 * - `DeadLettered`: parked for good, until a person decides.
 * - `Expired`: its deadline passed.
 *
 * @category models
 * @since 0.1.0
 */
export const State = Schema.Literals([
  "Completed",
  "Partial",
  "Failed",
  "Interrupted",
  "Rejected",
  "Deferred",
  "DeadLettered",
  "Expired"
])

/**
 * How a node ended.
 *
 * @category models
 * @since 0.1.0
 */
export type State = typeof State.Type

const node = { atMillis: Schema.Finite, task: Schema.String, node: Schema.String }

/**
 * Something that happened.
 *
 * - `Spawned`, `Started`, `Ended`: the life of a node; `Ended` comes once per node, `Spawned` before all else. A node
 *   that was refused has `Ended` alone.
 * - `Restarted`: a supervisor runs a child again; `restart` counts from 1.
 * - `DuplicateSibling`: a warning: a parent gave the same task to the same agent again while the first still runs.
 * - `Overdrawn`: a call used more than it had held; the excess was booked and charged upwards, and the node stopped.
 * - `Throttled`: a dependency asked for less; its gate is paused for `pausedMillis`.
 * - `BreakerMoved`: a dependency's breaker opened or closed by what its calls came to.
 * - `CommonFailure`: one operation fails for many: what it is, and which share of all failures of the last minute it
 *   explains.
 * - `LayerRetried`: a warning: below the layer that owns retries the same request was sent again within one call.
 * - `Zombie`: a call did not stop when interrupted; it keeps its slot until it really ends.
 * - `Draining`, `CutOff`: a shutdown began; a node was cut off when its grace ended.
 *
 * @category models
 * @since 0.1.0
 */
export const Event = Schema.Union([
  Schema.TaggedStruct("Spawned", {
    ...node,
    parent: Schema.optionalKey(Schema.String),
    agent: Schema.String,
    depth: Schema.Int,
    priority: Priority
  }),
  Schema.TaggedStruct("Started", node),
  Schema.TaggedStruct("Restarted", { ...node, restart: Schema.Int }),
  Schema.TaggedStruct("Ended", {
    ...node,
    agent: Schema.String,
    state: State,
    reason: Schema.optionalKey(Schema.String),
    tokens: Schema.Int,
    microDollars: Schema.Int
  }),
  Schema.TaggedStruct("DuplicateSibling", { ...node, agent: Schema.String }),
  Schema.TaggedStruct("Overdrawn", { ...node, tokens: Schema.Int, microDollars: Schema.Int }),
  Schema.TaggedStruct("Throttled", { ...node, dependency: Schema.String, pausedMillis: Schema.Finite }),
  Schema.TaggedStruct("BreakerMoved", { ...node, dependency: Schema.String, from: Schema.String, to: Schema.String }),
  Schema.TaggedStruct("CommonFailure", {
    ...node,
    dependency: Schema.String,
    operation: Schema.String,
    kind: Schema.String,
    failures: Schema.Int,
    share: Schema.Finite
  }),
  Schema.TaggedStruct("LayerRetried", {
    ...node,
    dependency: Schema.String,
    operation: Schema.String,
    times: Schema.Int
  }),
  Schema.TaggedStruct("Zombie", { ...node, dependency: Schema.String }),
  Schema.TaggedStruct("Draining", { atMillis: Schema.Finite, live: Schema.Int }),
  Schema.TaggedStruct("CutOff", { ...node, agent: Schema.String })
])

/**
 * Something that happened.
 *
 * @category models
 * @since 0.1.0
 */
export type Event = typeof Event.Type
