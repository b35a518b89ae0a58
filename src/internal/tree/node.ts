/**
 * A node of the tree: one agent at work, as a state machine.
 *
 * ```text
 * placed? -> waiting -> running -> ending -> ended
 *               ^          |          children stopped and ended, scope closed
 *               '- backoff-'          (run again by its supervisor)
 * ```
 *
 * One fiber runs the agent's code; there is no second one that waits for it. Its end is observed, then its children are
 * stopped and waited for, its scope closed, its account closed, its one terminal event told, and only then does its
 * parent see the exit. All of that happens on the fleet's agenda, so that neither depth nor width recurses.
 *
 * @internal
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as Scope from "effect/Scope"
import * as Deadline from "../../Deadline.ts"
import * as GaveUp from "../../GaveUp.ts"
import type { NodeReport } from "../../Report.ts"
import { Group, type Member } from "../../Supervisor.ts"
import { Bell } from "../alarm.ts"
import * as Attempts from "../attempts.ts"
import { CurrentTry } from "../currentTry.ts"
import { CurrentEnvelope, disown, type Envelope, own, type Seat } from "../envelope.ts"
import * as holding from "../holding.ts"
import type * as Ledger from "../ledger.ts"
import { type Child, Children } from "./children.ts"
import type { Definition } from "./definition.ts"
import { exitOf, gaveUp, isFault, type NodeExit, type Stop, timedOut } from "./exit.ts"
import { Place } from "./place.ts"
import type { Runtime } from "./runtime.ts"
import type { Task } from "./task.ts"

type Phase = "waiting" | "running" | "backoff" | "ending" | "ended"

/** Rings when a backoff is over. */
class BackoffBell extends Bell {
  readonly node: Node
  constructor(node: Node) {
    super()
    this.node = node
  }
  ring(now: number): void {
    this.node.takePlace(now)
  }
}

/** Optional parts of a node, made when first used. */
interface Extras {
  steps: Map<string, unknown>
  stepsUsed: Set<string>
  partial: { readonly value: unknown } | undefined
  bell: BackoffBell | undefined
  group: Group<Node> | undefined
}

export class Node extends Bell implements Seat, Member, Child {
  readonly runtime: Runtime
  readonly task: Task
  readonly parent: Node | undefined
  readonly definition: Definition
  readonly input: unknown
  readonly account: Ledger.Account
  readonly group: Group<Node> | undefined
  readonly context: Context.Context<never>
  readonly spawnedMillis: number
  envelope!: Envelope
  /** From here on time is kept for the node itself; set with its first child. */
  protectedFrom: Deadline.Deadline | undefined
  onReport: ((report: NodeReport) => void) | undefined
  next: Child | undefined
  previous: Child | undefined

  phase: Phase = "waiting"
  #place: Place
  #children: Children | undefined
  #extras: Extras | undefined
  #fiber: Fiber.Fiber<unknown, unknown> | undefined
  #scope: Scope.Closeable | undefined
  #stop: Stop | undefined
  #again = false
  #restarts = 0
  #blocked = 0
  readonly #proceeds = new Set<() => void>()
  #runExit: Exit.Exit<unknown, unknown> | undefined
  #exit: NodeExit | undefined
  #observers: Array<(exit: NodeExit) => void> | undefined

  constructor(
    runtime: Runtime,
    task: Task,
    parent: Node | undefined,
    definition: Definition,
    input: unknown,
    account: Ledger.Account,
    context: Context.Context<never>,
    group: Group<Node> | undefined,
    now: number
  ) {
    super()
    this.runtime = runtime
    this.task = task
    this.parent = parent
    this.definition = definition
    this.input = input
    this.account = account
    this.context = context
    this.group = group
    this.spawnedMillis = now
    this.#place = new Place(runtime.places, task.priority, now)
    group?.add(this)
    runtime.live++
  }

  get id(): string {
    return this.account.id
  }
  get taskHash(): number {
    return this.envelope.ancestry.low
  }
  get isLive(): boolean {
    return this.phase !== "ended" && this.#stop === undefined
  }
  get exit(): NodeExit | undefined {
    return this.#exit
  }
  get childCount(): number {
    return this.#children?.count ?? 0
  }
  get children(): Children {
    return (this.#children ??= new Children())
  }
  get extras(): Extras {
    return (this.#extras ??= {
      steps: new Map(),
      stepsUsed: new Set(),
      partial: undefined,
      bell: undefined,
      group: undefined
    })
  }

  /** The group of the children that were spawned without a supervisor of their own. */
  get ownGroup(): Group<Node> {
    return (this.extras.group ??= new Group())
  }

  /** Whether this node or one above it was told to stop. */
  get isStopping(): boolean {
    for (let node: Node | undefined = this; node !== undefined; node = node.parent) {
      if (node.#stop !== undefined || node.phase === "ending" || node.phase === "ended") return true
    }
    return false
  }

  // ---- its place -----------------------------------------------------------------------------------------------------

  /** Takes a place and runs; a place may be handed over by whoever waited for it. */
  start(now: number, place: Place | undefined): void {
    this.runtime.alarm.set(this, this.envelope.deadline)
    if (place === undefined) return this.takePlace(now)
    this.#place = place
    this.runtime.agenda.add(launch, this)
  }

  takePlace(now: number): void {
    if (this.phase === "ended" || this.phase === "ending") return
    this.phase = "waiting"
    this.#place.take(now, () => this.runtime.agenda.add(launch, this))
  }

  /** Gives the place back while an effect waits for others, and takes it again before newcomers. */
  block<A, E, R>(wait: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> {
    return Effect.suspend(() => {
      if (this.phase !== "running") return wait
      if (this.#blocked++ === 0 && this.#place.isHeld) this.#place.giveBack(this.runtime.alarm.now)
      return Effect.onExit(wait, () => this.#unblock())
    })
  }

  #unblock(): Effect.Effect<void> {
    return Effect.suspend(() => {
      if (--this.#blocked > 0 || this.phase !== "running" || this.#stop !== undefined) return Effect.void
      if (this.#place.isHeld) return Effect.void
      return Effect.interruptible(
        Effect.callback<void>((resume) => {
          const proceed = (): void => resume(Effect.void)
          this.#proceeds.add(proceed)
          if (this.#place.state !== "waiting") this.#place.take(this.runtime.alarm.now, this.#placeIsBack, true)
          return Effect.sync(() => this.#proceeds.delete(proceed))
        })
      )
    })
  }

  /** All fibers that wait for the node's one place go on with it. */
  readonly #placeIsBack = (): void => {
    // While another of its fibers waits for children the node keeps no place, or those children might never get one.
    if (this.#blocked > 0) this.#place.giveBack(this.runtime.alarm.now)
    const proceeds = [...this.#proceeds]
    this.#proceeds.clear()
    for (const proceed of proceeds) this.runtime.agenda.add(proceed, undefined)
  }

  // ---- a run ---------------------------------------------------------------------------------------------------------

  launch(): void {
    if (this.phase !== "waiting") return
    const now = this.runtime.alarm.now
    if (this.#stop !== undefined) return this.#end(now)
    this.phase = "running"
    this.#again = false
    this.#extras?.stepsUsed.clear()
    const scope = Scope.makeUnsafe()
    this.#scope = scope
    let context = Context.add(Context.add(this.context, CurrentEnvelope, this.envelope), Scope.Scope, scope)
    // What is run again earns no retries: only first attempts do.
    if (this.#restarts > 0) context = Context.add(context, CurrentTry, { again: true })
    if (this.#restarts === 0) Attempts.first(this.task.recorder.attempts, this.definition.layer)
    if (this.#restarts === 0 && this.runtime.isHeard()) this.#emitLife("Started", now)
    Effect.runForkWith(context)(this.#program()).addObserver((exit) => {
      this.#runExit = exit
      this.runtime.agenda.add(runEnded, this)
    })
  }

  /** The fiber is bound to its envelope before any of the agent's code runs. */
  #program(): Effect.Effect<unknown, unknown> {
    return Effect.withFiber((fiber) => {
      this.#fiber = fiber
      own(fiber.id, this.envelope)
      return this.#work()
    })
  }

  #work(): Effect.Effect<unknown, unknown> {
    const { name, run, verify } = this.definition
    const work = run(this.input, { partial: (value) => this.publish(value) }) as Effect.Effect<unknown, unknown>
    if (verify === undefined) return work
    return Effect.flatMap(work, (output) =>
      Effect.flatMap(verify(output, this.input) as Effect.Effect<boolean, unknown>, (holds) =>
        holds ? Effect.succeed(output) : Effect.fail(GaveUp.make({ _tag: "Unverified", agent: name }))
      )
    )
  }

  /** Keeps what there is so far, in the place of what was published before. */
  publish(value: unknown): Effect.Effect<void> {
    return Effect.suspend(() => {
      const { checksPartial, name } = this.definition
      if (checksPartial === undefined)
        return Effect.die(new TypeError(`Agent ${name}: declares no schema for partial results`))
      if (!checksPartial(value))
        return Effect.die(new TypeError(`Agent ${name}: the partial result does not fit its schema`))
      this.extras.partial = { value }
      return Effect.void
    })
  }

  runEnded(): void {
    disown(this.#fiber!.id)
    this.#fiber = undefined
    const now = this.runtime.alarm.now
    const exit = this.#runExit!
    this.phase = "ending"
    this.#place.giveBack(now)
    this.#children?.stop("Interrupted")
    const scope = this.#scope!
    if (scope.state._tag === "Empty") {
      this.#scope = undefined
    } else {
      Effect.runForkWith(this.runtime.context)(Scope.close(scope, exit)).addObserver(() => {
        this.#scope = undefined
        this.runtime.agenda.add(checkEnd, this)
      })
    }
    this.checkEnd()
  }

  checkEnd(): void {
    if (this.phase !== "ending" || this.childCount > 0 || this.#scope !== undefined) return
    const now = this.runtime.alarm.now
    if (this.#stop === undefined && this.#runExit !== undefined) {
      if (this.#again) return this.#runAgainIn(0, now)
      if (this.#restartAfter(this.#runExit, now)) return
    }
    this.#end(now)
  }

  // ---- supervision ---------------------------------------------------------------------------------------------------

  /** Whether the supervisor runs it again; if it gives up, those that depend on it are stopped. */
  #restartAfter(exit: Exit.Exit<unknown, unknown>, now: number): boolean {
    const { group, parent } = this
    if (group === undefined || parent === undefined) return false
    if (Exit.isSuccess(exit) ? group.restart !== "permanent" : !isFault(exit.cause)) return false
    const cost = Exit.isFailure(exit) && timedOut(exit.cause) ? 2 : 1
    const decision = group.failed(this, this.#restarts + 1, now, this.runtime.random(), () => {
      if (this.runtime.retryOwner !== "orchestrator" || !parent.envelope.mayRetry) return false
      if (parent.isStopping || this.runtime.draining) return false
      if (now + this.definition.estimateMillis >= this.envelope.deadline) return false
      return this.runtime.retries.withdraw(cost, now)
    })
    if (decision._tag === "Restart") {
      for (const other of decision.others) other.runAgain()
      this.#runAgainIn(decision.backoffMillis, now)
      return true
    }
    for (const other of decision.others) other.stop()
    if (decision.exceeded !== undefined) {
      this.#runExit = gaveUp(decision.exceeded, this.definition.name, this.#restarts, group, exit)
    }
    return false
  }

  #runAgainIn(backoffMillis: number, now: number): void {
    this.#restarts++
    this.task.recorder.retries++
    Attempts.again(this.task.recorder.attempts, this.definition.layer)
    this.#runExit = undefined
    this.#again = false
    this.#blocked = 0
    this.runtime.emit({
      _tag: "Restarted",
      atMillis: now,
      task: this.task.id,
      node: this.id,
      restart: this.#restarts
    })
    if (backoffMillis <= 0) return this.takePlace(now)
    this.phase = "backoff"
    this.runtime.alarm.set((this.extras.bell ??= new BackoffBell(this)), now + backoffMillis)
  }

  runAgain(): void {
    if (this.phase !== "running") return
    this.#again = true
    const fiber = this.#fiber
    if (fiber !== undefined) this.runtime.agenda.add(interrupt, fiber)
  }

  // ---- stopping ------------------------------------------------------------------------------------------------------

  ring(): void {
    this.stop("Expired")
  }

  stop(reason: Stop = "Interrupted"): void {
    if (this.#stop !== undefined || this.phase === "ended") return
    this.#stop = reason
    this.runtime.agenda.add(halt, this)
  }

  halt(): void {
    this.#children?.stop(this.#stop === "CutOff" ? "CutOff" : "Interrupted")
    switch (this.phase) {
      case "running":
        this.#fiber?.interruptUnsafe()
        return
      case "waiting":
      case "backoff":
        if (this.#extras?.bell !== undefined) this.runtime.alarm.unset(this.#extras.bell)
        this.#end(this.runtime.alarm.now)
    }
  }

  // ---- the end -------------------------------------------------------------------------------------------------------

  #end(now: number): void {
    if (this.phase === "ended") return
    this.phase = "ended"
    this.runtime.alarm.unset(this)
    this.#place.giveBack(now)
    this.group?.remove(this)
    const exit = exitOf(this.#runExit, this.#stop, this.#extras?.partial)
    holding.close(this.account, this.task.recorder)
    this.#exit = exit
    const { parent } = this
    this.task.ended[exit._tag]++
    this.runtime.live--
    const cutOff = this.#stop === "CutOff" && exit._tag !== "Completed"
    if (cutOff || this.onReport !== undefined || this.task.keeps || this.runtime.isHeard()) {
      this.#tell(this.#report(exit, now), cutOff, now)
    } else {
      this.task.omitted++
    }
    this.#extras = undefined
    this.#runExit = undefined
    if (parent !== undefined) parent.children.remove(this)
    const observers = this.#observers
    this.#observers = undefined
    if (observers !== undefined) for (const observer of observers) this.runtime.agenda.add(observer, exit)
    if (parent !== undefined) this.runtime.agenda.add(checkEnd, parent)
  }

  #report(exit: NodeExit, now: number): NodeReport {
    const { account, definition } = this
    return {
      node: this.id,
      ...(this.parent === undefined ? {} : { parent: this.parent.id }),
      agent: definition.name,
      ...(definition.label === undefined ? {} : { label: definition.label(this.input) }),
      depth: this.envelope.depth,
      state: exit._tag,
      ...("reason" in exit ? { reason: exit.reason } : {}),
      own: { tokens: account.ownTokens, microDollars: account.ownMicroDollars },
      subtree: { tokens: account.tokens.spent, microDollars: account.microDollars.spent },
      restarts: this.#restarts,
      millis: now - this.spawnedMillis
    }
  }

  #tell(report: NodeReport, cutOff: boolean, now: number): void {
    const { runtime, task, definition } = this
    task.add(report)
    this.onReport?.(report)
    if (cutOff && runtime.cutOff.length < 10_000) runtime.cutOff.push(report)
    if (!runtime.isHeard()) return
    const at = { atMillis: now, task: task.id, node: this.id, agent: definition.name }
    if (cutOff) runtime.emit({ _tag: "CutOff", ...at })
    runtime.emit({
      _tag: "Ended",
      ...at,
      state: report.state,
      ...(report.reason === undefined ? {} : { reason: report.reason }),
      tokens: report.subtree.tokens,
      microDollars: report.subtree.microDollars
    })
  }

  observe(observer: (exit: NodeExit) => void): () => void {
    if (this.#exit !== undefined) {
      observer(this.#exit)
      return () => {}
    }
    const observers = (this.#observers ??= [])
    observers.push(observer)
    return () => {
      const at = observers.indexOf(observer)
      if (at >= 0) observers.splice(at, 1)
    }
  }

  #emitLife(tag: "Started", now: number): void {
    this.runtime.emit({ _tag: tag, atMillis: now, task: this.task.id, node: this.id })
  }
}

// Moves of the agenda.
const launch = (node: Node): void => node.launch()
const runEnded = (node: Node): void => node.runEnded()
const checkEnd = (node: Node): void => node.checkEnd()
const halt = (node: Node): void => node.halt()
const interrupt = (fiber: Fiber.Fiber<unknown, unknown>): void => fiber.interruptUnsafe()
