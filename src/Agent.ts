/**
 * A named unit of work that may delegate to others: input and output schemas, an estimate, a run function.
 *
 * An agent is a program that decides for itself how much to do. Spawned, it becomes a node of a tree: it runs under an
 * envelope (deadline, priority, depth), on an account of its own, in a scope of its own, and ends in exactly one way.
 * What it may not do is refused before it starts, with a reason that code, a person or a model can act on. Its failure
 * is its own: siblings go on, and its parent sees the exit as a value.
 *
 * Bounds of the tree (options of the fleet and the task): depth 16, 256 children at once, 10 000 agents in all, 100 new
 * ones a second after the first 200.
 *
 * **Errors** `Rejected` (never ran), the agent's own error (untouched), `GaveUp` (ran and was given up).
 *
 * @stability experimental
 * @since 0.1.0
 */
import type * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import type * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as Deadline from "./Deadline.ts"
import type { State } from "./Event.ts"
import * as GaveUp from "./GaveUp.ts"
import { millisOf } from "./internal/duration.ts"
import { CurrentEnvelope, Envelope, of, section } from "./internal/envelope.ts"
import * as holding from "./internal/holding.ts"
import { integer, integerOrInfinity } from "./internal/number.ts"
import { decoder } from "./internal/schemaIssue.ts"
import type { Definition } from "./internal/tree/definition.ts"
import { Loop } from "./internal/tree/forEach.ts"
import { isSpent, joined, type NodeExit } from "./internal/tree/exit.ts"
import { NodeHandle, nodeOf, observing } from "./internal/tree/handle.ts"
import { Node } from "./internal/tree/node.ts"
import { childDeadline, refuse, type Request, spawn as spawnNode } from "./internal/tree/spawn.ts"
import { noneEnded } from "./internal/tree/task.ts"
import * as Rejected from "./Rejected.ts"
import * as Spend from "./Spend.ts"
import { Group, type Options as SupervisorOptions } from "./Supervisor.ts"

/**
 * An agent with input `I`, output `O`, partial result `P`, error `E` and requirements `R`.
 *
 * @category models
 * @since 0.1.0
 */
export interface Agent<in I, out O, out P = never, out E = never, out R = never> {
  readonly name: string
  readonly input: Schema.Constraint
  readonly output: Schema.Constraint
  /** @internal */
  readonly definition: Definition
  /** Types only; never set. */
  readonly "~types"?: {
    readonly input: (input: I) => void
    readonly output: () => O
    readonly partial: () => P
    readonly error: () => E
    readonly requirements: () => R
  }
}

/**
 * What an agent's code gets beside its input: a way to keep what there is so far, for when it is cut short.
 *
 * @category models
 * @since 0.1.0
 */
export interface Self<P> {
  readonly partial: (value: P) => Effect.Effect<void>
}

/**
 * How an agent is made.
 *
 * - `estimate`: what it takes, tokens and time; it is not started with less. Default nothing.
 * - `grant`: what its whole subtree may ever use; default twice the estimate, as far as that is there (a call must hold
 *   an upper bound, and what is over goes back), and without an estimate its parent's budget.
 * - `reserve`: tokens and time that no descendant can spend, for its own last words; default no tokens, and a tenth of
 *   the time, at most 10 seconds.
 * - `partial`: the schema of partial results; without it there are none.
 * - `verify`: a check that the output must pass; never skipped.
 * - `identity`: what makes two inputs the same task, for the loop guard; default the whole input.
 * - `measure`: a number that falls with every recursion, for agents that may meet themselves.
 * - `label`: names a node in reports. It leaves the process, so keep user data out of it.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options<
  In extends Schema.ConstraintDecoder<unknown>,
  Out extends Schema.Constraint,
  Pa extends Schema.ConstraintDecoder<unknown>,
  E,
  R
> {
  readonly input: In
  readonly output: Out
  readonly partial?: Pa
  readonly estimate?: Spend.Spend & { readonly time?: Duration.Input }
  readonly grant?: Spend.Spend
  readonly reserve?: Spend.Spend & { readonly time?: Duration.Input }
  readonly verify?: (output: Out["Type"], input: In["Type"]) => Effect.Effect<boolean, E, R>
  readonly identity?: (input: In["Type"]) => unknown
  readonly measure?: (input: In["Type"]) => number
  readonly label?: (input: In["Type"]) => string
  readonly run: (input: In["Type"], self: Self<Pa["Type"]>) => Effect.Effect<Out["Type"], E, R>
}

const millis = (where: string, input: Duration.Input | undefined, fallback: number): number =>
  input === undefined ? fallback : millisOf(where, input, false)

/** A label that throws must not keep a node from ending. */
const safely =
  (label: (input: unknown) => string) =>
  (input: unknown): string => {
    try {
      return String(label(input))
    } catch {
      return "no label: it threw"
    }
  }

/**
 * Makes an agent.
 *
 * **Errors** a `RangeError` that names the agent, the option and the value, for a number out of range.
 *
 * **Example** (A tree of two under a budget)
 *
 * ```ts
 * import { Effect, Schema } from "effect"
 * import * as Agent from "espalier/Agent"
 * import * as Fleet from "espalier/Fleet"
 *
 * const Prune = Agent.make("Prune", {
 *   input: Schema.String,
 *   output: Schema.String,
 *   run: (branch) => Effect.succeed(`${branch}, pruned`)
 * })
 * const Gardener = Agent.make("Gardener", {
 *   input: Schema.Array(Schema.String),
 *   output: Schema.Int,
 *   run: (branches) => Effect.map(Agent.forEach(Prune, branches), (results) => results.completed.length)
 * })
 * const program = Fleet.run(Gardener, ["left", "right"], { tokens: 1_000, deadline: "1 minute" })
 * const { output } = await Effect.runPromise(program.pipe(Effect.provide(Fleet.layer())))
 * console.log(output) // => 2
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = <
  In extends Schema.ConstraintDecoder<unknown>,
  Out extends Schema.Constraint,
  E = never,
  R = never,
  Pa extends Schema.ConstraintDecoder<unknown> = typeof Schema.Never
>(
  name: string,
  options: Options<In, Out, Pa, E, R>
): Agent<In["Type"], Out["Type"], Pa["Type"], E | GaveUp.GaveUp, Exclude<R, Scope.Scope>> => {
  const where = `Agent.make(${JSON.stringify(name)})`
  if (name.trim() === "") throw new RangeError(`Agent.make: name must not be empty`)
  if (options.grant !== undefined) Spend.make(options.grant, `${where}: grant`)
  if (options.reserve !== undefined) Spend.make(options.reserve, `${where}: reserve`)
  if (options.estimate !== undefined) Spend.make(options.estimate, `${where}: estimate`)
  return {
    name,
    input: options.input,
    output: options.output,
    definition: {
      name,
      layer: `agent ${name}`,
      decode: decoder(options.input),
      run: options.run as Definition["run"],
      verify: options.verify as Definition["verify"],
      checksPartial: options.partial === undefined ? undefined : Schema.is(options.partial),
      estimateTokens: options.estimate?.tokens ?? 0,
      estimateMicroDollars: options.estimate?.microDollars,
      estimateMillis: millis(`${where}: estimate.time`, options.estimate?.time, 0),
      grant: options.grant,
      reserve: options.reserve,
      reserveMillis:
        options.reserve?.time === undefined ? undefined : millis(`${where}: reserve.time`, options.reserve.time, 0),
      identity: (options.identity as Definition["identity"] | undefined) ?? ((input) => input),
      measure: options.measure as Definition["measure"],
      label: options.label === undefined ? undefined : safely(options.label as (input: unknown) => string)
    }
  }
}

/**
 * How a node ended, with what it ended with.
 *
 * @category models
 * @since 0.1.0
 */
export type Ended<O, P, E> =
  | { readonly _tag: "Completed"; readonly output: O }
  | { readonly _tag: "Partial"; readonly output: P; readonly reason: string }
  | { readonly _tag: "Failed"; readonly cause: Cause.Cause<E>; readonly reason: string }
  | { readonly _tag: "Interrupted"; readonly reason: string }
  | { readonly _tag: "Rejected"; readonly rejected: Rejected.Rejected; readonly reason: string }
  | { readonly _tag: "Expired"; readonly reason: string }

/**
 * A spawned agent. Waiting for it gives the parent's place in the fleet back meanwhile, so that a chain of any depth
 * finishes with a single place.
 *
 * - `await`: how it ended, as a value.
 * - `join`: its output (or partial result), or its failure: its own error, or `GaveUp` when it expired or was stopped.
 * - `stop`: stops it and all below it, and waits for their end.
 *
 * @category models
 * @since 0.1.0
 */
export interface Handle<out O, out P, out E> {
  readonly id: string
  readonly await: Effect.Effect<Ended<O, P, E>>
  readonly join: Effect.Effect<O | P, E | Rejected.Rejected | GaveUp.GaveUp>
  readonly stop: Effect.Effect<void>
}

/**
 * What one child gets: a grant (tokens, money) carved out of its parent's at once, a deadline from now, and how it is
 * supervised. All optional; none can be wider than the parent's.
 *
 * @category models
 * @since 0.1.0
 */
export interface SpawnOptions extends Spend.Spend {
  readonly deadline?: Duration.Input
  readonly supervisor?: SupervisorOptions
}

const requestOf = (definition: Definition, options: SpawnOptions, now: number): Omit<Request, "input" | "place"> => ({
  definition,
  grant:
    options.tokens === undefined && options.microDollars === undefined
      ? undefined
      : Spend.make(
          {
            ...(options.tokens === undefined ? {} : { tokens: options.tokens }),
            ...(options.microDollars === undefined ? {} : { microDollars: options.microDollars })
          },
          `${definition.name}: grant`
        ),
  deadline: options.deadline === undefined ? undefined : Deadline.after(now, options.deadline, definition.name),
  group: options.supervisor === undefined ? undefined : new Group<Node>(options.supervisor)
})

const inTree = <A, E, R>(
  name: string,
  f: (parent: Node, envelope: Envelope, context: Context.Context<never>) => Effect.Effect<A, E, R>
): Effect.Effect<A, E | Rejected.Rejected, R> =>
  Effect.withFiber((fiber): Effect.Effect<A, E | Rejected.Rejected, R> => {
    const envelope = of(fiber)
    const parent = nodeOf(envelope)
    return envelope === undefined || parent === undefined
      ? Effect.fail(Rejected.make({ _tag: "NoEnvelope", dependency: name }))
      : f(parent, envelope, fiber.context)
  })

/**
 * Starts an agent as a child of the running one and does not wait for it. When the parent ends, it is stopped.
 *
 * **Errors** `Rejected`: a bound of the tree, a delegation loop, too little time or money for its estimate.
 *
 * @category combinators
 * @since 0.1.0
 */
export const spawn = <I, O, P, E, R>(
  agent: Agent<I, O, P, E, R>,
  input: NoInfer<I>,
  options: SpawnOptions = {}
): Effect.Effect<Handle<O, P, E>, Rejected.Rejected, R> =>
  inTree(agent.name, (parent, envelope, context) => {
    const request = { ...requestOf(agent.definition, options, parent.runtime.alarm.now), input, place: undefined }
    const node = spawnNode(parent, envelope, context, request)
    return node instanceof Node
      ? Effect.succeed(new NodeHandle(node) as unknown as Handle<O, P, E>)
      : Effect.fail(refuse(parent, request, node))
  })

/**
 * Starts an agent as a child and waits for its result.
 *
 * @category combinators
 * @since 0.1.0
 */
export const run = <I, O, P, E, R>(
  agent: Agent<I, O, P, E, R>,
  input: NoInfer<I>,
  options: SpawnOptions = {}
): Effect.Effect<O | P, E | Rejected.Rejected | GaveUp.GaveUp, R> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.flatMap(spawn(agent, input, options), (handle) =>
      Effect.onInterrupt(restore(handle.join), () => handle.stop)
    )
  )

/**
 * One item of a loop that did not complete.
 *
 * @category models
 * @since 0.1.0
 */
export interface Unfinished<I> {
  readonly index: number
  readonly input: I
  readonly state: State
  readonly reason: string
}

/**
 * What came of a loop: `ended` counts by how the items ended and adds up to the items pulled; `stopped` says why the
 * rest of a source was not pulled, if so. Lists are in the order of the items and empty with `discard`.
 *
 * @category models
 * @since 0.1.0
 */
export interface Results<I, O, P> {
  readonly completed: ReadonlyArray<{ readonly index: number; readonly input: I; readonly output: O }>
  readonly partial: ReadonlyArray<{
    readonly index: number
    readonly input: I
    readonly output: P
    readonly reason: string
  }>
  readonly unfinished: ReadonlyArray<Unfinished<I>>
  readonly ended: { readonly [S in State]: number }
  readonly stopped: Rejected.Reason | undefined
}

/**
 * - `concurrency`: children at once; default as many as the fleet has places and the tree has width for.
 * - `discard`: keep counts only, for sources without end; default `false`.
 *
 * @category models
 * @since 0.1.0
 */
export interface ForEachOptions extends SpawnOptions {
  readonly concurrency?: number
  readonly discard?: boolean
}

/**
 * Runs an agent for each item of an iterable or a stream and waits for all. Items are pulled one by one, each when its
 * child can start; an endless source takes no memory. Never fails because a child does, and never starts one that it
 * cannot fund or finish: what did not complete is in the results with its reason. The children share one supervisor, so
 * its intensity (3 restarts in 60 seconds by default) is for the whole loop.
 *
 * **Errors** `Rejected` outside a fleet; the stream's own error. A `RangeError` for a bad option.
 *
 * @category combinators
 * @since 0.1.0
 */
export const forEach: {
  <I, O, P, E, R>(
    agent: Agent<I, O, P, E, R>,
    items: Iterable<NoInfer<I>>,
    options?: ForEachOptions
  ): Effect.Effect<Results<I, O, P>, Rejected.Rejected, R>
  <I, O, P, E, R, SE, SR>(
    agent: Agent<I, O, P, E, R>,
    items: Stream.Stream<NoInfer<I>, SE, SR>,
    options?: ForEachOptions
  ): Effect.Effect<Results<I, O, P>, Rejected.Rejected | SE, R | SR>
} = <I, O, P, E, R>(
  agent: Agent<I, O, P, E, R>,
  items: Iterable<I> | Stream.Stream<I, unknown, unknown>,
  options: ForEachOptions = {}
): Effect.Effect<Results<I, O, P>, never, R> =>
  inTree(agent.name, (parent, envelope, context) => {
    const results = collect<I, O, P>(options.discard ?? false)
    const concurrency = integerOrInfinity(
      `forEach(${agent.name}): concurrency`,
      options.concurrency ?? parent.task.bounds.width,
      1
    )
    const request = requestOf(agent.definition, options, parent.runtime.alarm.now)
    const loop = new Loop(parent, envelope, context, request, concurrency, results.add)
    const pull = Stream.isStream(items) ? Stream.runForEachWhile(items, loop.next) : pullAll(items, loop)
    return parent
      .block(
        Effect.onExit(Effect.andThen(pull, loop.finished), (exit) =>
          Exit.isSuccess(exit) ? Effect.void : loop.abandon
        )
      )
      .pipe(Effect.map(() => results.result(loop.stopped)))
  }) as Effect.Effect<Results<I, O, P>, never, R>

/** A source of known length is listed to its end, so that every item has its reason; another is left alone. */
const pullAll = <I>(items: Iterable<I>, loop: Loop): Effect.Effect<void> =>
  Effect.gen(function* () {
    const known = Array.isArray(items) || items instanceof Set || items instanceof Map
    for (const item of items) {
      const goesOn = yield* loop.next(item)
      if (!goesOn && !known) return
    }
  })

const collect = <I, O, P>(discard: boolean) => {
  const completed: Array<Results<I, O, P>["completed"][number]> = []
  const partial: Array<Results<I, O, P>["partial"][number]> = []
  const unfinished: Array<Unfinished<I>> = []
  const ended = noneEnded()
  const inOrder = (a: { readonly index: number }, b: { readonly index: number }): number => a.index - b.index
  return {
    add: (index: number, given: unknown, exit: NodeExit): void => {
      ended[exit._tag]++
      if (discard) return
      const input = given as I
      if (exit._tag === "Completed") completed.push({ index, input, output: exit.output as O })
      else if (exit._tag === "Partial") partial.push({ index, input, output: exit.output as P, reason: exit.reason })
      else unfinished.push({ index, input, state: exit._tag, reason: exit.reason })
    },
    result: (stopped: Rejected.Reason | undefined): Results<I, O, P> => ({
      completed: completed.sort(inOrder),
      partial: partial.sort(inOrder),
      unfinished: unfinished.sort(inOrder),
      ended,
      stopped
    })
  }
}

/**
 * Gives the same input to several agents and takes the first result; the others are stopped, and what they spent stays
 * spent. Fails with the last failure when none completes.
 *
 * **Errors** `Rejected` when none could start; a `RangeError` without agents.
 *
 * @category combinators
 * @since 0.1.0
 */
export const race = <I, O, P, E, R>(
  agents: ReadonlyArray<Agent<I, O, P, E, R>>,
  input: NoInfer<I>,
  options: SpawnOptions = {}
): Effect.Effect<O, E | Rejected.Rejected | GaveUp.GaveUp, R> => {
  integer("Agent.race: number of agents", agents.length, 1)
  const name = agents.map((agent) => agent.name).join("|")
  return inTree(name, (parent, envelope, context) =>
    Effect.uninterruptibleMask((restore) => {
      const nodes: Array<Node> = []
      let last: Exit.Exit<unknown, unknown> = Exit.void
      for (const agent of agents) {
        const request = { ...requestOf(agent.definition, options, parent.runtime.alarm.now), input, place: undefined }
        const node = spawnNode(parent, envelope, context, request)
        if (node instanceof Node) nodes.push(node)
        else last = Exit.fail(refuse(parent, request, node))
      }
      if (nodes.length === 0) return last as Exit.Exit<O, Rejected.Rejected>
      const first = Effect.callback<O, E | Rejected.Rejected | GaveUp.GaveUp>((resume) => {
        let live = nodes.length
        for (const node of nodes) {
          node.observe((exit) => {
            live--
            last = joined(node.definition.name, exit)
            if (exit._tag === "Completed" || live === 0)
              resume(last as Exit.Exit<O, E | Rejected.Rejected | GaveUp.GaveUp>)
          })
        }
      })
      const stopRest = Effect.suspend(() => {
        for (const node of [...nodes].reverse()) node.stop("Interrupted")
        return Effect.forEach(nodes, observing, { discard: true })
      })
      return parent.block(Effect.ensuring(restore(first), stopRest))
    })
  )
}

/**
 * Keeps what there is so far: if time, budget or a stop cuts the agent short, this is its (partial) result. Each call
 * replaces what was kept before. Typed as `self.partial` in the agent's `run`.
 *
 * **Gotchas** a defect for an agent that declares no `partial` schema, and for a value that does not fit it.
 *
 * @category combinators
 * @since 0.1.0
 */
export const partial = (value: unknown): Effect.Effect<void, Rejected.Rejected> =>
  inTree("Agent.partial", (node) => node.publish(value))

/**
 * Runs an effect inside the protected reserve: in the time that no child could take, and with the tokens and money that
 * were kept for the agent's own last words.
 *
 * @category combinators
 * @since 0.1.0
 */
export const wrapUp = <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E | Rejected.Rejected, R> =>
  inTree("Agent.wrapUp", (_node, envelope) =>
    Effect.provideService(self, CurrentEnvelope, section(envelope, envelope.deadline, true))
  )

/**
 * Runs `work`, and when time or budget is about to end it, `finish` inside the protected reserve. Work that ends by
 * itself needs no finish.
 *
 * **Details** the work is interrupted at the agent's deadline less its `reserve.time`; a `Rejected` for budget or
 * deadline ends it too. `finish` is told which.
 *
 * @category combinators
 * @since 0.1.0
 */
export const orWrapUp = <A, E, R, A2, E2, R2>(
  work: Effect.Effect<A, E, R>,
  finish: (why: "deadline" | "budget") => Effect.Effect<A2, E2, R2>
): Effect.Effect<A | A2, E | E2 | Rejected.Rejected, R | R2> =>
  inTree("Agent.orWrapUp", (node, envelope) =>
    Effect.suspend((): Effect.Effect<A | A2, E | E2 | Rejected.Rejected, R | R2> => {
      const now = node.runtime.alarm.now
      const until = childDeadline(node, envelope, now)
      const left = Deadline.timeLeft(until, now)
      // The finish runs outside of what is timed and caught, so that its own end is not taken for the work's.
      const bounded = Effect.map(
        Effect.provideService(work, CurrentEnvelope, section(envelope, until, false)),
        (value) => ({ value })
      )
      const timed =
        left === Infinity
          ? bounded
          : Effect.timeoutOrElse(bounded, {
              duration: Duration.millis(left),
              orElse: () => Effect.succeed("deadline" as const)
            })
      const ended = Effect.catchIf(timed, isSpent, (error) =>
        Effect.succeed(
          Rejected.isRejected(error) && error.reason._tag === "BudgetExceeded"
            ? ("budget" as const)
            : ("deadline" as const)
        )
      ) as Effect.Effect<{ readonly value: A } | "deadline" | "budget", E, R>
      return Effect.flatMap(ended, (end): Effect.Effect<A | A2, E2 | Rejected.Rejected, R2> =>
        typeof end === "string" ? wrapUp(finish(end)) : Effect.succeed(end.value)
      )
    })
  )

/**
 * Lets a value pass when its check holds, and fails with `GaveUp` (`Unverified`) when not. Never skipped, on no rung.
 *
 * @category combinators
 * @since 0.1.0
 */
export const verify = <A, E, R>(
  value: A,
  check: (value: A) => Effect.Effect<boolean, E, R>
): Effect.Effect<A, E | GaveUp.GaveUp, R> =>
  Effect.withFiber((fiber) =>
    Effect.flatMap(check(value), (holds) =>
      holds
        ? Effect.succeed(value)
        : Effect.fail(GaveUp.make({ _tag: "Unverified", agent: of(fiber)?.agent ?? "none" }))
    )
  )

/**
 * A checkpoint: runs the effect once per node and keeps its result, so that a run that is tried again does not repeat
 * (and pay) what it has finished.
 *
 * **Gotchas** names are unique within a run; a name used twice in one run is a defect. Results are kept in memory.
 *
 * @category combinators
 * @since 0.1.0
 */
export const step = <A, E, R>(
  name: string,
  effect: Effect.Effect<A, E, R>
): Effect.Effect<A, E | Rejected.Rejected, R> =>
  inTree(`Agent.step(${name})`, (node) =>
    Effect.suspend(() => {
      const { steps, stepsUsed } = node.extras
      if (stepsUsed.has(name)) {
        return Effect.die(
          new RangeError(
            `Agent.step: name must be unique within a run of ${node.definition.name}, got ${JSON.stringify(name)} twice`
          )
        )
      }
      stepsUsed.add(name)
      if (steps.has(name)) return Effect.succeed(steps.get(name) as A)
      return Effect.tap(effect, (result) => Effect.sync(() => steps.set(name, result)))
    })
  )

/**
 * What to tell a model in the place of a tool's result when a call or a child was refused: the reason, and what remains
 * of tokens, money and time.
 *
 * @category formatting
 * @since 0.1.0
 */
export const toolResult = (rejected: Rejected.Rejected): Effect.Effect<Rejected.ToolResult> =>
  Effect.withFiber((fiber) => {
    const envelope = of(fiber)
    if (envelope === undefined) return Effect.succeed(Rejected.toToolResult(rejected))
    const left = Deadline.timeLeft(envelope.deadline, Deadline.nowUnsafe(fiber.getRef(Clock.Clock)))
    return Effect.succeed(
      Rejected.toToolResult(rejected, {
        ...holding.remaining(envelope),
        ...(left === Infinity ? {} : { seconds: Math.floor(left / 1_000) })
      })
    )
  })
