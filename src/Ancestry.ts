/**
 * The agents and tasks from the root of a tree down to a node, as hashes.
 *
 * Agents that may delegate will one day delegate to themselves: A asks B, B asks A the same thing. A counter inside
 * one run never sees it, because every hop starts a new run. The path does: meeting the same agent with the same
 * normalized input again is a delegation loop. Inputs are kept as 64-bit hashes, so nothing of a prompt is held.
 *
 * @stability experimental
 * @since 0.1.0
 */
import { canonicalJson } from "./internal/canonicalJson.ts"
import { hash64 } from "./internal/hash.ts"

/**
 * One step of a path: an agent, the hash of its task, and the steps above it.
 *
 * @category models
 * @since 0.1.0
 */
export interface Ancestry {
  readonly agent: string
  readonly high: number
  readonly low: number
  readonly depth: number
  readonly parent: Ancestry | undefined
}

/**
 * Adds a step below `parent`. The task is normalized first: white space, case, ids of requests and timestamps do not
 * make it another one.
 *
 * **Example** (The same task in other words is the same step)
 *
 * ```ts
 * import * as Ancestry from "espalier/Ancestry"
 *
 * const first = Ancestry.extend(undefined, "Research", { topic: "Pear trees", requestId: "a1" })
 * const again = Ancestry.extend(first, "Research", { topic: " pear  TREES", requestId: "b2" })
 * console.log(Ancestry.loop(again)?.join(" > ")) // => Research > Research
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const extend = (parent: Ancestry | undefined, agent: string, task: unknown): Ancestry => {
  const { high, low } = hash64(`${agent}\n${canonicalJson(task)}`)
  return { agent, high, low, depth: parent === undefined ? 0 : parent.depth + 1, parent }
}

/**
 * Whether two steps are the same agent on the same task.
 *
 * @category predicates
 * @since 0.1.0
 */
export const isSameStep = (a: Ancestry, b: Ancestry): boolean =>
  a.low === b.low && a.high === b.high && a.agent === b.agent

/**
 * The names of the agents from the root down.
 *
 * @category getters
 * @since 0.1.0
 */
export const path = (self: Ancestry): ReadonlyArray<string> => {
  const names: Array<string> = []
  for (let step: Ancestry | undefined = self; step !== undefined; step = step.parent) names.push(step.agent)
  return names.reverse()
}

/**
 * The path from the first meeting to this one when the last step already stands above, else `undefined`.
 *
 * @category getters
 * @since 0.1.0
 */
export const loop = (self: Ancestry): ReadonlyArray<string> | undefined => {
  for (let step = self.parent; step !== undefined; step = step.parent) {
    if (isSameStep(step, self)) return path(self).slice(step.depth)
  }
  return undefined
}
