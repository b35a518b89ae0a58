/**
 * The runtime itself: takes tasks in, runs their trees side by side within bounds, and shuts down in order.
 *
 * A fleet is where the four things that are unbounded in a plan become bounded: how many tasks wait and run, how many
 * agents run at once (places), how many calls and tokens the tree may use. A task is admitted, waits in line by
 * priority, is refused, or is parked, and the caller chooses which; what is accepted ends in exactly one way and is
 * reported node by node.
 *
 * A place covers an agent while its code runs, never while it waits for its children, so a chain of any depth finishes
 * with one place.
 *
 * Units: places and tasks are counts, tokens and micro-dollars whole numbers, times Effect durations.
 *
 * **Errors** `Rejected` (never ran), the agent's own error, `GaveUp`. Bad numbers are defects: a `RangeError` that names
 * the option and the value.
 *
 * @stability experimental
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Queue from "effect/Queue"
import * as Random from "effect/Random"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type { Agent, Ended } from "./Agent.ts"
import * as Deadline from "./Deadline.ts"
import type { Event } from "./Event.ts"
import * as Gate from "./Gate.ts"
import type { GaveUp } from "./GaveUp.ts"
import * as alarm from "./internal/alarm.ts"
import * as CommonFailure from "./internal/commonFailure.ts"
import { millisOf } from "./internal/duration.ts"
import { of } from "./internal/envelope.ts"
import * as Ledger from "./internal/ledger.ts"
import { integer } from "./internal/number.ts"
import { Agenda } from "./internal/tree/agenda.ts"
import * as bounds from "./internal/tree/bounds.ts"
import { joined } from "./internal/tree/exit.ts"
import type { Runtime } from "./internal/tree/runtime.ts"
import { type Desk, type Outcome, Submission } from "./internal/tree/submission.ts"
import * as Limit from "./Limit.ts"
import * as Priority from "./Priority.ts"
import * as Rejected from "./Rejected.ts"
import type { NodeReport, Report } from "./Report.ts"
import * as RetryBudget from "./RetryBudget.ts"
import * as Spend from "./Spend.ts"

/**
 * - `places`: agents whose code runs at once, in all trees; default 64.
 * - `tasks`: trees at once; default 16. `queue`: tasks that may wait for that; default 1 000. `deferred`: tasks that may
 *   be parked (in memory); default 10 000.
 * - `tokens`, `microDollars`: what all tasks together may use; default unlimited.
 * - `depth` 16, `width` 256 (children of one node at once), `descendants` 10 000 (of a task in all), `spawnsPerSecond`
 *   100, `spawnBurst` 200: bounds of each tree. A runaway plan meets one of them within seconds; a task may ask for
 *   tighter ones.
 * - `retries`: the retry budget of the fleet.
 * - `retryOwner`: the one layer that tries again; everybody else fails at once. `"orchestrator"` (default): the root agent
 *   of a task, for its own work (`Retry.owned`) and for its children as wholes. `"agent"`: every agent, for its own work.
 *   `"call"`: every governed call. `"nobody"`.
 * - `grace`: how long a shutdown lets go before it cuts off; default 10 seconds.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options extends Spend.Spend, Partial<Bounds> {
  readonly places?: number
  readonly tasks?: number
  readonly queue?: number
  readonly deferred?: number
  readonly retries?: RetryBudget.Options
  readonly retryOwner?: "orchestrator" | "agent" | "call" | "nobody"
  readonly grace?: Duration.Input
}

/**
 * Bounds of a tree; see {@link Options}.
 *
 * @category models
 * @since 0.1.0
 */
export interface Bounds extends bounds.Bounds {}

/**
 * - `tokens`, `microDollars`: the grant of the whole tree; absent is unlimited (within the fleet's), 0 is nothing.
 * - `deadline`: from now, waiting included; default none.
 * - `priority`: tier 0 to 3; default 3, because a label is what earns a place.
 * - `whenFull`: what to do when it cannot start at once. `"wait"` (default): the submitter waits in line, in the order of
 *   tiers, refused only when the line is full. `"refuse"`: `QueueFull`. `"defer"`: park it; it starts when there is room
 *   and nobody waits.
 *
 * @category models
 * @since 0.1.0
 */
export interface SubmitOptions extends Spend.Spend, Partial<Bounds> {
  readonly deadline?: Duration.Input
  readonly priority?: number
  readonly whenFull?: "wait" | "refuse" | "defer"
}

/**
 * A result with the report of the tree that made it; `report.state` says whether it is complete or partial.
 *
 * @category models
 * @since 0.1.0
 */
export interface Result<O, P> {
  readonly output: O | P
  readonly report: Report
}

/**
 * A submitted task. Of a deferred one, `await`, `join` and `report` wait until it has been resumed and has ended.
 *
 * @category models
 * @since 0.1.0
 */
export interface Handle<out O, out P, out E> {
  readonly id: string
  readonly await: Effect.Effect<Ended<O, P, E>>
  readonly join: Effect.Effect<O | P, E | Rejected.Rejected | GaveUp>
  readonly report: Effect.Effect<Report>
  readonly isDeferred: Effect.Effect<boolean>
  readonly stop: Effect.Effect<void>
}

/**
 * A task in a snapshot. `spent` is what is settled so far, `waiting` counts calls in line.
 *
 * @category models
 * @since 0.1.0
 */
export interface TaskSnapshot {
  readonly task: string
  readonly agent: string
  readonly priority: Priority.Priority
  readonly live: number
  readonly ended: Report["ended"]
  readonly granted: Spend.Spend
  readonly spent: Spend.Amount
  readonly inFlight: number
  readonly waiting: number
  readonly calls: number
  readonly throttled: number
  readonly retries: number
  readonly leftMillis: number
}

/**
 * The state of a fleet at a moment. Costs O(tasks), never O(agents).
 *
 * @category models
 * @since 0.1.0
 */
export interface Snapshot {
  readonly draining: boolean
  readonly live: number
  readonly places: Gate.Snapshot
  readonly tasks: ReadonlyArray<TaskSnapshot>
  readonly waitingTasks: number
  readonly deferredTasks: number
  readonly retryBalance: number
}

/**
 * What a shutdown cut off, by name; `deaf` are tasks that had not ended 5 seconds after that, because their code ignores
 * interruption.
 *
 * @category models
 * @since 0.1.0
 */
export interface Drained {
  readonly cutOff: ReadonlyArray<NodeReport>
  readonly deaf: ReadonlyArray<string>
}

/**
 * The fleet as a service.
 *
 * @category services
 * @since 0.1.0
 */
export class Fleet extends Context.Service<
  Fleet,
  {
    readonly submit: <I, O, P, E, R>(
      agent: Agent<I, O, P, E, R>,
      input: NoInfer<I>,
      options?: SubmitOptions,
      /** Told of the handle in the same step as the acceptance. */
      accepted?: (handle: Handle<O, P, E>) => void
    ) => Effect.Effect<Handle<O, P, E>, Rejected.Rejected, R>
    readonly snapshot: Effect.Effect<Snapshot>
    readonly events: Stream.Stream<Event>
    readonly drain: (grace?: Duration.Input) => Effect.Effect<Drained>
  }
>()("espalier/Fleet") {}

const eventsKept = 16_384

const make = Effect.fnUntraced(function* (options: Options) {
  const where = "Fleet.layer"
  const context = yield* Effect.context<never>()
  const clock = yield* Clock.Clock
  const random = yield* Random.Random
  const sharedBounds = bounds.make(where, options)
  const capacity = integer(`${where}: deferred`, options.deferred ?? 10_000, 0, 10_000_000)
  const grace = Duration.millis(millisOf(`${where}: grace`, options.grace ?? "10 seconds"))
  const places = integer(`${where}: places`, options.places ?? 64, 1, 1_000_000)
  const taskLimit = integer(`${where}: tasks`, options.tasks ?? 16, 1, 1_000_000)
  const readers = new Set<Queue.Queue<Event>>()
  const runtime: Runtime = {
    alarm: yield* alarm.make,
    places: yield* Gate.make({ limit: Limit.fixed(places), queue: 10_000_000 }),
    agenda: new Agenda(context, clock),
    account: Ledger.open("fleet", Spend.make(options, where)),
    retries: RetryBudget.make(options.retries),
    retryOwner: options.retryOwner ?? "orchestrator",
    failures: CommonFailure.make(),
    context,
    random: () => random.nextDoubleUnsafe(),
    emit: (event) => {
      for (const reader of readers) Queue.offerUnsafe(reader, event)
    },
    isHeard: () => readers.size > 0,
    draining: false,
    live: 0,
    cutOff: []
  }
  const desk: Desk = {
    runtime,
    line: yield* Gate.make({ limit: Limit.fixed(taskLimit), queue: options.queue ?? 1_000 }),
    parked: [new Set(), new Set(), new Set(), new Set()],
    live: new Set(),
    nextTask: 1
  }
  const fleet = Fleet.of({
    submit: (agent, input, submitOptions = {}, accepted) =>
      admit(desk, sharedBounds, capacity, agent, input, submitOptions, accepted),
    snapshot: Effect.sync(() => snapshotOf(desk)),
    events: Stream.unwrap(
      Effect.map(
        Effect.acquireRelease(
          Effect.tap(Queue.sliding<Event>(eventsKept), (queue) => Effect.sync(() => readers.add(queue))),
          (queue) =>
            Effect.andThen(
              Effect.sync(() => readers.delete(queue)),
              Queue.shutdown(queue)
            )
        ),
        Stream.fromQueue
      )
    ),
    drain: (given) =>
      shutDown(desk, given === undefined ? grace : Duration.millis(millisOf("Fleet.drain: grace", given)))
  })
  yield* Effect.addFinalizer(() => fleet.drain())
  return fleet
})

const admit = <I, O, P, E, R>(
  desk: Desk,
  sharedBounds: bounds.Bounds,
  capacity: number,
  agent: Agent<I, O, P, E, R>,
  input: I,
  options: SubmitOptions,
  accepted: ((handle: Handle<O, P, E>) => void) | undefined
): Effect.Effect<Handle<O, P, E>, Rejected.Rejected, R> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.withFiber((fiber): Effect.Effect<Handle<O, P, E>, Rejected.Rejected> => {
      const where = `Fleet.submit(${agent.name})`
      const { runtime, line, parked } = desk
      const now = runtime.alarm.now
      const refuse = (reason: Rejected.Reason) => Effect.fail(Rejected.make(reason))
      const priority = Priority.make(options.priority ?? Priority.unlabelled, where)
      const grant = Spend.make(pick(options), where)
      const deadline = options.deadline === undefined ? Deadline.never : Deadline.after(now, options.deadline, where)
      const own = bounds.make(where, { ...sharedBounds, ...definedOf(options) })
      if (of(fiber) !== undefined) return refuse({ _tag: "Nested", agent: agent.name })
      if (runtime.draining) return refuse({ _tag: "Draining" })
      const decoded = agent.definition.decode(input)
      if ("issue" in decoded) return refuse({ _tag: "InvalidInput", agent: agent.name, issue: decoded.issue })
      const submission = new Submission(
        desk,
        {
          definition: agent.definition,
          input: decoded.value,
          grant,
          deadline,
          priority,
          bounds: bounds.tighter(own, sharedBounds),
          context: Context.add(
            Context.omit(Fleet)(fiber.context as Context.Context<Fleet>),
            RetryBudget.CurrentRetryBudget,
            runtime.retries
          )
        },
        now
      )
      const full = !line.hasRoom(now)
      if (full && (options.whenFull === "refuse" || (options.whenFull !== "defer" && line.isFull))) {
        return refuse({ _tag: "QueueFull", queue: "the fleet", capacity: line.snapshot(now).queue })
      }
      if (full && options.whenFull === "defer") {
        if (parkedCount(parked) >= capacity)
          return refuse({ _tag: "QueueFull", queue: "the deferred tasks of the fleet", capacity })
        submission.park(now)
        const parkedHandle = handleOf<O, P, E>(submission, agent.name)
        accepted?.(parkedHandle)
        return Effect.succeed(parkedHandle)
      }
      const reason = submission.accept(now)
      if (reason !== undefined) return refuse(reason)
      const handle = handleOf<O, P, E>(submission, agent.name)
      accepted?.(handle)
      if (submission.hasStarted) return Effect.succeed(handle)
      const started = Effect.callback<void>((resume) => {
        submission.onStart = () => resume(Effect.void)
        submission.observe(() => resume(Effect.void))
      })
      return Effect.as(
        Effect.onInterrupt(restore(started), () => handle.stop),
        handle
      )
    })
  )

const parkedCount = (parked: Desk["parked"]): number => parked.reduce((sum, tier) => sum + tier.size, 0)

const pick = ({ tokens, microDollars }: Spend.Spend): Spend.Spend => ({
  ...(tokens === undefined ? {} : { tokens }),
  ...(microDollars === undefined ? {} : { microDollars })
})

const definedOf = (options: Partial<Bounds>): Partial<Bounds> =>
  Object.fromEntries(
    (["depth", "width", "descendants", "spawnsPerSecond", "spawnBurst"] as const)
      .filter((key) => options[key] !== undefined)
      .map((key) => [key, options[key]])
  )

const handleOf = <O, P, E>(submission: Submission, name: string): Handle<O, P, E> => {
  const outcome = Effect.callback<Outcome>((resume) => {
    const unobserve = submission.observe((ended) => resume(Effect.succeed(ended)))
    return Effect.sync(unobserve)
  })
  return {
    id: submission.id,
    await: Effect.map(outcome, ({ exit }) => exit as Ended<O, P, E>),
    join: Effect.flatMap(outcome, ({ exit }) => joined(name, exit) as Exit.Exit<O | P, E | Rejected.Rejected | GaveUp>),
    report: Effect.map(outcome, ({ report }) => report),
    isDeferred: Effect.sync(() => submission.isParked),
    stop: Effect.suspend(() => {
      submission.stop("Interrupted")
      return Effect.asVoid(outcome)
    })
  }
}

const snapshotOf = (desk: Desk): Snapshot => {
  const { runtime, live, line, parked } = desk
  const now = runtime.alarm.now
  return {
    draining: runtime.draining,
    live: runtime.live,
    places: runtime.places.snapshot(now),
    waitingTasks: line.snapshot(now).waiting.reduce((sum, tier) => sum + tier, 0),
    deferredTasks: parkedCount(parked),
    retryBalance: runtime.retries.balance(now),
    tasks: [...live].flatMap(({ task, node }) => {
      if (task === undefined || node === undefined) return []
      const { recorder } = task
      return [
        {
          task: task.id,
          agent: node.definition.name,
          priority: task.priority,
          live: task.live,
          ended: { ...task.ended },
          granted: Ledger.grantOf(node.account),
          spent: { tokens: recorder.spentTokens, microDollars: recorder.spentMicroDollars },
          inFlight: recorder.inFlight,
          waiting: recorder.waiting,
          calls: recorder.calls,
          throttled: recorder.throttled,
          retries: recorder.retries,
          leftMillis: Deadline.timeLeft(node.envelope.deadline, now)
        }
      ]
    })
  }
}

/** Stops admission at once, lets what runs go on for the grace, then cuts off and waits for the end. */
const shutDown = (desk: Desk, grace: Duration.Duration): Effect.Effect<Drained> =>
  Effect.suspend(() => {
    const { runtime, live, parked } = desk
    if (!runtime.draining) {
      runtime.draining = true
      runtime.emit({ _tag: "Draining", atMillis: runtime.alarm.now, live: runtime.live })
    }
    for (const tier of parked) for (const submission of tier) submission.stop("CutOff")
    const allEnded = Effect.suspend(() =>
      Effect.forEach([...live], (submission) => handleOf(submission, "").await, { discard: true })
    )
    // Code that ignores interruption is not waited for without end: it is named, and the process may go.
    const cut = Effect.suspend(() => {
      for (const submission of live) submission.stop("CutOff")
      return Effect.timeoutOrElse(allEnded, { duration: cutOffPatience, orElse: () => Effect.void })
    })
    return Effect.map(Effect.timeoutOrElse(allEnded, { duration: grace, orElse: () => cut }), () => ({
      cutOff: [...runtime.cutOff],
      deaf: [...live].map((submission) => submission.id)
    }))
  })

/** How long a shutdown waits for what it has cut off. */
const cutOffPatience = Duration.seconds(5)

/**
 * A fleet that lives as long as the layer; when the layer closes it is drained.
 *
 * **Errors** a `RangeError` that names the option and the value, when the layer is built.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options: Options = {}): Layer.Layer<Fleet> => Layer.effect(Fleet, make(options))

/**
 * Hands a task to the fleet and returns as soon as it has started (or is parked).
 *
 * **Errors** `Rejected`: no room (`QueueFull`), too little time or money, input that does not fit, shutting down, or
 * submitted from inside an agent.
 *
 * @category combinators
 * @since 0.1.0
 */
export const submit: <I, O, P, E, R>(
  agent: Agent<I, O, P, E, R>,
  input: NoInfer<I>,
  options?: SubmitOptions
) => Effect.Effect<Handle<O, P, E>, Rejected.Rejected, R | Fleet> = (agent, input, options) =>
  Effect.flatMap(Fleet, (fleet) => fleet.submit(agent, input, options))

/**
 * Runs a task and waits for its result and its report. Interrupting it stops the whole tree and waits for its end.
 *
 * **Errors** `Rejected`, the agent's own error, `GaveUp`.
 *
 * @category combinators
 * @since 0.1.0
 */
export const run = <I, O, P, E, R>(
  agent: Agent<I, O, P, E, R>,
  input: NoInfer<I>,
  options?: SubmitOptions
): Effect.Effect<Result<O, P>, E | Rejected.Rejected | GaveUp, R | Fleet> =>
  Effect.suspend(() => {
    // Known from the step that accepts it, so that no interruption falls between and leaves a task that nobody stops.
    let accepted: Handle<O, P, E> | undefined
    const handle = Effect.flatMap(Fleet, (fleet) =>
      fleet.submit(agent, input, options, (given) => {
        accepted = given
      })
    )
    const result = Effect.flatMap(handle, ({ join, report }) =>
      Effect.flatMap(join, (output) => Effect.map(report, (report) => ({ output, report })))
    )
    return Effect.onInterrupt(result, () => accepted?.stop ?? Effect.void)
  })

/**
 * What the fleet is doing at this moment.
 *
 * @category getters
 * @since 0.1.0
 */
export const snapshot: Effect.Effect<Snapshot, never, Fleet> = Effect.flatMap(Fleet, (fleet) => fleet.snapshot)

/**
 * What happens from now on. Bounded at 16 384 events: a slow reader loses the oldest.
 *
 * @category getters
 * @since 0.1.0
 */
export const events: Stream.Stream<Event, never, Fleet> = Stream.unwrap(Effect.map(Fleet, (fleet) => fleet.events))

/**
 * Shuts down: refuses new tasks and new agents at once, lets what runs end within the grace (default the fleet's), then
 * cuts off the rest and says what was cut off.
 *
 * @category combinators
 * @since 0.1.0
 */
export const drain = (grace?: Duration.Input): Effect.Effect<Drained, never, Fleet> =>
  Effect.flatMap(Fleet, (fleet) => fleet.drain(grace))

/**
 * Drains the fleet when the process is told to stop: the first signal starts a drain with its grace, a second one cuts
 * off at once. Completes with what was cut off; never completes without a signal. Listeners live as long as the scope.
 *
 * @category combinators
 * @since 0.1.0
 */
export const drainOnSignal = (
  signals: ReadonlyArray<"SIGTERM" | "SIGINT"> = ["SIGTERM", "SIGINT"],
  grace?: Duration.Input
): Effect.Effect<Drained, never, Fleet | Scope.Scope> =>
  Effect.gen(function* () {
    const received = yield* Queue.unbounded<void>()
    yield* Effect.acquireRelease(
      Effect.sync(() => {
        const listener = (): void => {
          Queue.offerUnsafe(received, undefined)
        }
        for (const signal of signals) process.on(signal, listener)
        return listener
      }),
      (listener) =>
        Effect.sync(() => {
          for (const signal of signals) process.off(signal, listener)
        })
    )
    yield* Queue.take(received)
    return yield* Effect.raceFirst(drain(grace), Effect.andThen(Queue.take(received), drain(0)))
  })
