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
  readonly #terms: Terms
  readonly #parent: Envelope | undefined

  constructor(
    token: typeof key,
    terms: Terms,
    parent: Envelope | undefined,
    account: unknown,
    node: Seat,
    recorder: Recorder,
    reserve: boolean
  ) {
    if (token !== key) throw new TypeError("Envelope: made only by the runtime; narrow the current one instead")
    this.#terms = terms
    this.#parent = parent
    this.#account = account
    this.#node = node
    this.#recorder = recorder
    this.#reserve = reserve
  }

  get id(): string {
    return this.#terms.id
  }
  get agent(): string {
    return this.#terms.agent
  }
  get task(): string {
    return this.#recorder.task
  }
  get depth(): number {
    return this.#terms.ancestry.depth
  }
  get ancestry(): Ancestry {
    return this.#terms.ancestry
  }
  get priority(): Priority {
    return this.#terms.priority
  }
  get deadline(): Deadline {
    return this.#terms.deadline
  }
  get mayRetry(): boolean {
    return this.#terms.mayRetry
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
  static terms(self: Envelope): Terms {
    return self.#terms
  }
  static parent(self: Envelope): Envelope | undefined {
    return self.#parent
  }
}
// An instance leads to its class through `constructor`, and the class to the readers above: close that way.
Object.defineProperty(Envelope.prototype, "constructor", { value: Object, enumerable: false })
Object.freeze(Envelope.prototype)

/** The terms of a task's root; made by the fleet alone. */
export const root = (terms: Terms, account: unknown, node: Seat, recorder: Recorder): Envelope =>
  new Envelope(key, terms, undefined, account, node, recorder, false)

export interface Narrowing {
  readonly id: string
  readonly agent: string
  readonly ancestry: Ancestry
  readonly deadline: Deadline
  readonly mayRetry: boolean
  readonly account: unknown
  readonly node: Seat
}

/** The one way to make a child: never a later deadline, the same priority, a longer ancestry, retries only if its parent may. */
export const narrow = (parent: Envelope, to: Narrowing): Envelope =>
  new Envelope(
    key,
    {
      id: to.id,
      agent: to.agent,
      priority: parent.priority,
      deadline: earlier(parent.deadline, to.deadline),
      ancestry: to.ancestry,
      mayRetry: parent.mayRetry && to.mayRetry
    },
    parent,
    to.account,
    to.node,
    Envelope.recorder(parent),
    false
  )

/** The same node under an earlier deadline, or inside its protected reserve. */
export const section = (self: Envelope, deadline: Deadline, reserve: boolean): Envelope =>
  new Envelope(
    key,
    { ...Envelope.terms(self), deadline: earlier(self.deadline, deadline) },
    Envelope.parent(self),
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
