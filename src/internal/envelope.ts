/**
 * The envelope's class, kept from agent code.
 *
 * What an envelope allows must not be forgeable: its fields are private to the class, its constructor wants a key that
 * never leaves this module, and whether an object is an envelope is asked of the class (`#brand in value`), which a
 * copy, a proxy or a subclass does not pass. Which envelope a fiber is under is kept by fiber id beside the context, so
 * that a context that someone captured elsewhere does not carry another node's terms into this one.
 *
 * @internal
 */
import * as Context from "effect/Context"
import type * as Fiber from "effect/Fiber"
import type { Ancestry } from "../Ancestry.ts"
import { type Deadline, earlier } from "../Deadline.ts"
import type { Priority } from "../Priority.ts"
import type { Recorder } from "./recorder.ts"

const key: unique symbol = Symbol("espalier/envelope")

export interface Terms {
  readonly id: string
  readonly agent: string
  readonly priority: Priority
  readonly deadline: Deadline
  readonly ancestry: Ancestry
  readonly mayRetry: boolean
}

/** The node that an envelope belongs to, as far as the floors below the tree may know it. */
export interface Seat {
  readonly isStopping: boolean
}

export class Envelope {
  readonly #brand = true
  readonly #account: unknown
  readonly #node: Seat
  readonly #recorder: Recorder
  readonly #reserve: boolean
  readonly #id: string
  readonly #agent: string
  readonly #priority: Priority
  readonly #deadline: Deadline
  readonly #ancestry: Ancestry
  readonly #mayRetry: boolean

  constructor(
    token: typeof key,
    id: string,
    agent: string,
    priority: Priority,
    deadline: Deadline,
    ancestry: Ancestry,
    mayRetry: boolean,
    account: unknown,
    node: Seat,
    recorder: Recorder,
    reserve: boolean
  ) {
    if (token !== key) throw new TypeError("Envelope: made only by the runtime; narrow the current one instead")
    this.#id = id
    this.#agent = agent
    this.#priority = priority
    this.#deadline = deadline
    this.#ancestry = ancestry
    this.#mayRetry = mayRetry
    this.#account = account
    this.#node = node
    this.#recorder = recorder
    this.#reserve = reserve
  }

  get id(): string {
    return this.#id
  }
  get agent(): string {
    return this.#agent
  }
  get task(): string {
    return this.#recorder.task
  }
  get depth(): number {
    return this.#ancestry.depth
  }
  get ancestry(): Ancestry {
    return this.#ancestry
  }
  get priority(): Priority {
    return this.#priority
  }
  get deadline(): Deadline {
    return this.#deadline
  }
  get mayRetry(): boolean {
    return this.#mayRetry
  }

  static is(value: unknown): value is Envelope {
    return typeof value === "object" && value !== null && #brand in value
  }
  static account(self: Envelope): unknown {
    return self.#account
  }
  static node(self: Envelope): Seat {
    return self.#node
  }
  static recorder(self: Envelope): Recorder {
    return self.#recorder
  }
  static usesReserve(self: Envelope): boolean {
    return self.#reserve
  }
}
// An instance leads to its class through `constructor`, and the class to the readers above: close that way.
Object.defineProperty(Envelope.prototype, "constructor", { value: Object, enumerable: false })
Object.freeze(Envelope.prototype)

/** The terms of a task's root; made by the fleet alone. */
export const root = (terms: Terms, account: unknown, node: Seat, recorder: Recorder): Envelope => {
  const { id, agent, priority, deadline, ancestry, mayRetry } = terms
  return new Envelope(key, id, agent, priority, deadline, ancestry, mayRetry, account, node, recorder, false)
}

/**
 * The one way to make a child: never a later deadline, the same priority, a longer ancestry, and retries only if its
 * parent may.
 */
export const narrow = (
  parent: Envelope,
  id: string,
  ancestry: Ancestry,
  deadline: Deadline,
  mayRetry: boolean,
  account: unknown,
  node: Seat
): Envelope =>
  new Envelope(
    key,
    id,
    ancestry.agent,
    parent.priority,
    earlier(parent.deadline, deadline),
    ancestry,
    parent.mayRetry && mayRetry,
    account,
    node,
    Envelope.recorder(parent),
    false
  )

/** The same node under an earlier deadline, or inside its protected reserve. */
export const section = (self: Envelope, deadline: Deadline, reserve: boolean): Envelope =>
  new Envelope(
    key,
    self.id,
    self.agent,
    self.priority,
    earlier(self.deadline, deadline),
    self.ancestry,
    self.mayRetry,
    Envelope.account(self),
    Envelope.node(self),
    Envelope.recorder(self),
    reserve
  )

export const CurrentEnvelope: Context.Reference<Envelope | undefined> = Context.Reference<Envelope | undefined>(
  "espalier/CurrentEnvelope",
  { defaultValue: () => undefined }
)

const owned = new Map<number, Envelope>()

/** Binds the fiber of a node to its envelope until {@link disown}. */
export const own = (fiberId: number, envelope: Envelope): void => {
  owned.set(fiberId, envelope)
}
export const disown = (fiberId: number): void => {
  owned.delete(fiberId)
}
export const ownedCount = (): number => owned.size

/** The envelope that a fiber really runs under: the context's, unless the fiber belongs to another node. */
export const of = (fiber: Fiber.Fiber<unknown, unknown>): Envelope | undefined => {
  const current = fiber.getRef(CurrentEnvelope)
  const genuine = Envelope.is(current) ? current : undefined
  const mine = owned.get(fiber.id)
  if (mine === undefined) return genuine
  return genuine !== undefined && Envelope.node(genuine) === Envelope.node(mine) ? genuine : mine
}
