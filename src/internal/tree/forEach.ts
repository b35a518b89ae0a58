/**
 * One child for each item, as many at once as there are places, funds and width for, and no item pulled before it can
 * start.
 *
 * A refusal that may pass is waited out: a spawn rate until it allows, a budget or a width until one of the loop's own
 * children ends and gives back. What cannot pass ends the item as refused, with its reason. A source of unknown length
 * is not pulled any further once nothing more can start.
 *
 * The running parent has given its place back while this loops. A place is taken in line for the next child before the
 * child is made (the scout), so that a wide parent holds one waiting child and not thousands.
 *
 * @internal
 */
import type * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Gate from "../../Gate.ts"
import type * as Rejected from "../../Rejected.ts"
import { describe } from "../../Rejected.ts"
import { Bell } from "../alarm.ts"
import type { Envelope } from "../envelope.ts"
import type { NodeExit } from "./exit.ts"
import { Node } from "./node.ts"
import { refuse, type Request, spawn } from "./spawn.ts"

/** Holds a place in line for a child that is not made yet. */
class Scout extends Bell implements Gate.Ticket {
  readonly tier: 0 | 1 | 2 | 3
  readonly cost = 1
  readonly order = 0
  readonly enqueuedMillis: number
  readonly needsSlot = true
  readonly tokens = 0
  ticket = 0
  state: "new" | "waiting" | "granted" | "ended" = "new"
  onGranted: (() => void) | undefined

  constructor(tier: 0 | 1 | 2 | 3, now: number) {
    super()
    this.tier = tier
    this.enqueuedMillis = now
  }
  granted(): void {
    this.onGranted?.()
  }
  ring(): void {}
}

/** Refusals after which nothing else can start either. */
const final = new Set<Rejected.Reason["_tag"]>([
  "BudgetExceeded",
  "Unpriced",
  "DescendantsExceeded",
  "DeadlineExceeded",
  "Draining",
  "DepthExceeded"
])

export class Loop {
  readonly #parent: Node
  readonly #envelope: Envelope
  readonly #context: Context.Context<never>
  readonly #request: Omit<Request, "input" | "placed">
  readonly #concurrency: number
  readonly #onEnd: (index: number, input: unknown, exit: NodeExit) => void
  readonly #live = new Set<Node>()
  #index = 0
  #wake: (() => void) | undefined
  /** Why nothing more can start, once that is so. */
  stopped: Rejected.Reason | undefined

  constructor(
    parent: Node,
    envelope: Envelope,
    context: Context.Context<never>,
    request: Omit<Request, "input" | "placed">,
    concurrency: number,
    onEnd: (index: number, input: unknown, exit: NodeExit) => void
  ) {
    this.#parent = parent
    this.#envelope = envelope
    this.#context = context
    this.#request = request
    this.#concurrency = concurrency
    this.#onEnd = onEnd
  }

  /** Waits until the item's child has started or is refused; `false` when nothing more can start. */
  readonly next = (input: unknown): Effect.Effect<boolean> => {
    const index = this.#index++
    const attempt: Effect.Effect<boolean> = Effect.suspend(() => {
      if (this.#live.size >= this.#concurrency) return Effect.andThen(this.#someEnd, attempt)
      return Effect.flatMap(this.#place, (scout) => this.#start(scout, index, input, attempt))
    })
    return attempt
  }

  #start(scout: Scout, index: number, input: unknown, attempt: Effect.Effect<boolean>): Effect.Effect<boolean> {
    const { group } = this.#request
    const request = { ...this.#request, input, placed: true }
    const node =
      group?.givenUp === true
        ? ({ _tag: "Draining" } as const)
        : spawn(this.#parent, this.#envelope, this.#context, request)
    if (node instanceof Node) {
      scout.state = "ended"
      this.#live.add(node)
      node.observe((exit) => {
        this.#live.delete(node)
        this.#onEnd(index, input, exit)
        this.#wake?.()
      })
      return Effect.succeed(true)
    }
    this.#parent.runtime.places.leave(scout, undefined, this.#parent.runtime.alarm.now)
    if (node._tag === "SpawnRateExceeded")
      return Effect.andThen(Effect.sleep(Duration.millis(node.retryAfterMillis)), attempt)
    if ((node._tag === "BudgetExceeded" || node._tag === "WidthExceeded") && this.#live.size > 0) {
      return Effect.andThen(this.#someEnd, attempt)
    }
    const rejected = refuse(this.#parent, request, node)
    this.#onEnd(index, input, { _tag: "Rejected", rejected, reason: describe(node) })
    if (final.has(node._tag)) this.stopped = node
    return Effect.succeed(this.stopped === undefined)
  }

  /** A place in the fleet for the next child. */
  readonly #place: Effect.Effect<Scout> = Effect.callback<Scout>((resume) => {
    const { places, alarm } = this.#parent.runtime
    const scout = new Scout(this.#parent.tier, alarm.now)
    if (places.enter(scout, alarm.now, Infinity)._tag === "Granted") return resume(Effect.succeed(scout))
    scout.onGranted = () => {
      scout.onGranted = undefined
      this.#parent.runtime.agenda.add(() => resume(Effect.succeed(scout)))
    }
    return Effect.sync(() => {
      if (scout.state === "waiting") places.cancel(scout, alarm.now)
      else if (scout.state === "granted") places.leave(scout, undefined, alarm.now)
    })
  })

  readonly #someEnd: Effect.Effect<void> = Effect.callback<void>((resume) => {
    this.#wake = () => {
      this.#wake = undefined
      resume(Effect.void)
    }
    return Effect.sync(() => {
      this.#wake = undefined
    })
  })

  readonly finished: Effect.Effect<void> = Effect.suspend(() =>
    this.#live.size === 0 ? Effect.void : Effect.andThen(this.#someEnd, this.finished)
  )

  /** Stops what still runs, the last started first, and waits for its end. */
  readonly abandon: Effect.Effect<void> = Effect.suspend(() => {
    for (const node of [...this.#live].reverse()) node.stop("Interrupted")
    return this.finished
  })
}
