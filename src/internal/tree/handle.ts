/**
 * Waiting for a node from inside another one, which gives its place back meanwhile.
 *
 * @internal
 */
import * as Effect from "effect/Effect"
import { Envelope, of } from "../envelope.ts"
import { joined, type NodeExit } from "./exit.ts"
import { Node } from "./node.ts"

/** The node that an envelope belongs to. */
export const nodeOf = (envelope: Envelope | undefined): Node | undefined => {
  const node = envelope === undefined ? undefined : Envelope.node(envelope)
  return node instanceof Node ? node : undefined
}

/** How a node ended, once it has. */
export const observing = (node: Node): Effect.Effect<NodeExit> =>
  Effect.withFiber((fiber) => {
    const wait = Effect.callback<NodeExit>((resume) => {
      const unobserve = node.observe((exit) => resume(Effect.succeed(exit)))
      return Effect.sync(unobserve)
    })
    const waiter = nodeOf(of(fiber))
    return node.exit !== undefined || waiter === undefined ? wait : waiter.block(wait)
  })

/** What a parent holds of a child: its end as a value, its result, and a way to stop it. */
export class NodeHandle {
  readonly #node: Node
  constructor(node: Node) {
    this.#node = node
  }
  get id(): string {
    return this.#node.id
  }
  get await(): Effect.Effect<NodeExit> {
    return observing(this.#node)
  }
  get join(): Effect.Effect<unknown, unknown> {
    return Effect.flatMap(observing(this.#node), (exit) => joined(this.#node.definition.name, exit))
  }
  get stop(): Effect.Effect<void> {
    return Effect.suspend(() => {
      this.#node.stop("Interrupted")
      return Effect.asVoid(observing(this.#node))
    })
  }
}
