/**
 * One child for each item, as many at once as there are places, funds and width for, and no item pulled before it can
 * start.
 *
 * A refusal that may pass is waited out: a spawn rate until it allows, a budget or a width until one of the loop's own
 * children ends and gives back. What cannot pass ends the item as refused, with its reason. A source of unknown length
 * is not pulled any further once nothing more can start.
 *
 * The running parent has given its place back while this loops. A place is taken for the next child before the child
 * is made, so that a wide parent holds one waiting child and not thousands.
 *
 * @internal
 */
import type * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Rejected from "../../Rejected.ts"
import { describe } from "../../Rejected.ts"
import type { Envelope } from "../envelope.ts"
import type { NodeExit } from "./exit.ts"
import { Node } from "./node.ts"
import { Place } from "./place.ts"
import { refuse, type Request, spawn } from "./spawn.ts"

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
  readonly #request: Omit<Request, "input" | "place">
  readonly #concurrency: number
  readonly #onEnd: (index: number, input: unknown, exit: NodeExit) => void
  readonly #live = new Set<Node>()
  #index = 0
  /** A place that was taken for the next child and not yet handed over; an interruption in between gives it back. */
  #pending: Place | undefined
  #ends = 0
  #wake: (() => void) | undefined
  /** Why nothing more can start, once that is so. */
  stopped: Rejected.Reason | undefined

  constructor(
    parent: Node,
    envelope: Envelope,
    context: Context.Context<never>,
    request: Omit<Request, "input" | "place">,
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
      if (this.#live.size >= this.#concurrency) return Effect.andThen(this.#endAfter(this.#ends), attempt)
      return Effect.flatMap(this.#place, (place) => this.#start(place, index, input, attempt))
    })
    return attempt
  }

  #start(place: Place, index: number, input: unknown, attempt: Effect.Effect<boolean>): Effect.Effect<boolean> {
    const { group } = this.#request
    this.#pending = undefined
    const request = { ...this.#request, input, place }
    const node =
      group?.givenUp === true
        ? ({ _tag: "Draining" } as const)
        : spawn(this.#parent, this.#envelope, this.#context, request)
    if (node instanceof Node) {
      this.#live.add(node)
      node.observe((exit) => {
        this.#live.delete(node)
        this.#ends++
        this.#onEnd(index, input, exit)
        this.#wake?.()
      })
      return Effect.succeed(true)
    }
    place.giveBack(this.#parent.runtime.alarm.now)
    if (node._tag === "SpawnRateExceeded")
      return Effect.andThen(Effect.sleep(Duration.millis(node.retryAfterMillis)), attempt)
    if ((node._tag === "BudgetExceeded" || node._tag === "WidthExceeded") && this.#live.size > 0) {
      return Effect.andThen(this.#endAfter(this.#ends), attempt)
    }
    const rejected = refuse(this.#parent, request, node)
    this.#onEnd(index, input, { _tag: "Rejected", rejected, reason: describe(node) })
    if (final.has(node._tag)) this.stopped = node
    return Effect.succeed(this.stopped === undefined)
  }

  /** A place in the fleet for the next child. */
  readonly #place: Effect.Effect<Place> = Effect.callback<Place>((resume) => {
    const { places, alarm, agenda } = this.#parent.runtime
    const place = new Place(places, this.#parent.task.priority, alarm.now)
    this.#pending = place
    const proceed = (): void => resume(Effect.succeed(place))
    place.take(alarm.now, () => agenda.add(proceed, undefined))
    return Effect.sync(() => place.giveBack(alarm.now))
  })

  /** Waits for an end of a child beyond those seen; one that came between the look and the wait is not missed. */
  #endAfter(seen: number): Effect.Effect<void> {
    return Effect.callback<void>((resume) => {
      if (this.#ends !== seen) return resume(Effect.void)
      this.#wake = () => {
        this.#wake = undefined
        resume(Effect.void)
      }
      return Effect.sync(() => {
        this.#wake = undefined
      })
    })
  }

  readonly finished: Effect.Effect<void> = Effect.suspend(() =>
    this.#live.size === 0 ? Effect.void : Effect.andThen(this.#endAfter(this.#ends), this.finished)
  )

  /** Stops what still runs, the last started first, and waits for its end. */
  readonly abandon: Effect.Effect<void> = Effect.suspend(() => {
    this.#pending?.giveBack(this.#parent.runtime.alarm.now)
    for (const node of [...this.#live].reverse()) node.stop("Interrupted")
    return this.finished
  })
}
