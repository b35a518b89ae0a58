/**
 * One governed call as an object: its ticket in the gate, its hold in the ledger, its bell, its worker fiber.
 *
 * ```text
 * new -> waiting -> running -> done            the usual way; waiting is skipped when nobody waits
 *            |         |-> ending -> done      cut (time-out, deadline, caller gone) and ended within its grace
 *            |         |-> ending -> zombie    cut, and still running after its grace: keeps its slot until it ends
 *            |-> done                          refused, expired or cancelled in line: has cost nothing
 * ```
 *
 * Every move is synchronous, so no interruption falls between a grant and the record of it. The object is the whole
 * state: one callback and one fiber a call, no scope, no finalizer, no time-out fiber.
 *
 * @internal
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as Semaphore from "effect/Semaphore"
import { type Deadline, never } from "../Deadline.ts"
import type { Breaker, Ticket } from "../Breaker.ts"
import * as Gate from "../Gate.ts"
import * as GaveUp from "../GaveUp.ts"
import * as Outcome from "../Outcome.ts"
import * as Rejected from "../Rejected.ts"
import type { RetryBudget } from "../RetryBudget.ts"
import { make as check, type Spend, zero } from "../Spend.ts"
import { Bell } from "./alarm.ts"
import * as Attempts from "./attempts.ts"
import { CurrentTry } from "./currentTry.ts"
import { note } from "./commonFailure.ts"
import { CurrentEnvelope, Envelope } from "./envelope.ts"
import type { Unfit } from "./gateMachine.ts"
import { kindOf } from "./errorKind.ts"
import * as holding from "./holding.ts"
import { lineOrder } from "./lineOrder.ts"
import type { Hold } from "./ledger.ts"
import type { Recorder } from "./recorder.ts"

/** A dependency at run time. */
export interface Site {
  readonly name: string
  /** Its name among the layers that try again. */
  readonly layer: string
  readonly gate: Gate.Gate
  readonly breaker: Breaker | undefined
  readonly timeoutMillis: number
  readonly graceMillis: number
  readonly recorder: Recorder
  readonly random: () => number
  readonly classify: (exit: Exit.Exit<unknown, unknown>) => Outcome.Outcome
}

export interface Request<A, E> {
  readonly operation: string
  readonly bound: Spend
  readonly needsMillis: number
  readonly timeoutMillis: number
  readonly usage: ((exit: Exit.Exit<A, E>) => Spend | undefined) | undefined
  readonly classify: ((exit: Exit.Exit<A, E>) => Outcome.Outcome) | undefined
}

/** The innermost call that a fiber runs inside of; its `outer` leads to the others. */
export const CurrentCall: Context.Reference<Call | undefined> = Context.Reference<Call | undefined>(
  "espalier/CurrentCall",
  { defaultValue: () => undefined }
)

/** The live call to `site` that this one would re-enter from inside of. */
export const heldSlot = (site: Site, from: Call | undefined): Call | undefined => {
  for (let call = from; Call.is(call); call = call.outer) {
    if (call.site === site && call.state === "granted") return call
  }
  return undefined
}

type Phase = "new" | "waiting" | "running" | "ending" | "zombie" | "done"
type Cut = "timeout" | "deadline" | "caller"
type Failure<E> = E | Rejected.Rejected | GaveUp.GaveUp

/** Longest pause after throttles that do not say when to come back; starts at a second and doubles. */
const maxPauseMillis = 30_000
/** The longest wait that an answer is believed. */
const maxAskedMillis = 3_600_000
const clamped = (millis: number): number => Math.max(0, Math.min(maxAskedMillis, millis))

export class Call<A = unknown, E = unknown> extends Bell implements Gate.Ticket {
  // What the line and the gate read.
  readonly tier: 0 | 1 | 2 | 3
  readonly cost: number
  readonly order: number
  readonly enqueuedMillis: number
  readonly needsSlot: boolean
  readonly tokens: number
  ticket = 0
  state: "new" | "waiting" | "granted" | "ended" = "new"

  readonly site: Site
  readonly outer: Call | undefined
  readonly #envelope: Envelope | undefined
  readonly #deadline: Deadline
  readonly #recorder: Recorder
  readonly #request: Request<A, E>
  readonly #work: Effect.Effect<A, E>
  readonly #context: Context.Context<never>
  readonly #retries: RetryBudget
  readonly #resume: (exit: Effect.Effect<A, Failure<E>>) => void
  #phase: Phase = "new"
  #released: (() => void) | undefined
  #hold: Hold | undefined
  #leave: Ticket | undefined
  #startedMillis = 0
  #worker: Fiber.Fiber<A, E> | undefined
  #cut: Cut | undefined
  #throttles = 0
  #loan: Semaphore.Semaphore | undefined
  #sent: Map<string, number> | undefined

  constructor(
    site: Site,
    envelope: Envelope | undefined,
    request: Request<A, E>,
    work: Effect.Effect<A, E>,
    context: Context.Context<never>,
    outer: Call | undefined,
    reenters: boolean,
    retries: RetryBudget,
    now: number,
    resume: (exit: Effect.Effect<A, Failure<E>>) => void
  ) {
    super()
    this.site = site
    this.outer = outer
    this.tier = envelope?.priority ?? 3
    this.tokens = request.bound.tokens ?? 0
    this.cost = Gate.costOf(site.gate, this.tokens)
    this.enqueuedMillis = now
    this.needsSlot = !reenters
    this.#envelope = envelope
    this.#deadline = envelope?.deadline ?? never
    this.#recorder = envelope === undefined ? site.recorder : Envelope.recorder(envelope)
    const attained = this.#recorder.spentTokens + this.#recorder.calls
    this.order = lineOrder(this.#recorder.calls > 0, this.#deadline, attained)
    this.#request = request
    this.#work = work
    this.#context = context
    this.#retries = retries
    this.#resume = resume
  }

  /** Whether the runtime made it: a made-up one would lend a slot that nobody holds. */
  static is(value: unknown): value is Call {
    return typeof value === "object" && value !== null && #phase in value
  }

  /** One at a time re-enters a slot, so that a slot never covers two calls side by side. */
  get loan(): Semaphore.Semaphore {
    return (this.#loan ??= Semaphore.makeUnsafe(1))
  }

  /** Envelope, budget, gate. What is refused here has cost nothing. */
  begin(now: number): void {
    const needs = this.#request.needsMillis
    const left = this.#deadline - now
    if (left <= 0 || left < needs) return this.#refuse(tooLate(needs, left))
    if (this.#envelope !== undefined) {
      if (Envelope.node(this.#envelope).isStopping) return this.#refuse({ _tag: "Draining" })
      const hold = holding.take(this.#envelope, this.#request.bound)
      if (Rejected.isRejected(hold)) return this.#finish(Exit.fail(hold))
      this.#hold = hold
    }
    const refusal = this.#whileOpen(now) ?? this.#enter(now)
    if (refusal === undefined) {
      Attempts.first(this.#recorder.attempts, this.site.layer)
      if (Context.get(this.#context, CurrentTry)?.again !== true) this.#retries.deposit(now)
      return
    }
    this.#settle(zero, now)
    this.#refuse(refusal)
  }

  #whileOpen(now: number): Rejected.Reason | undefined {
    const { breaker, name } = this.site
    if (breaker === undefined || breaker.closedFor(now) === 0) return undefined
    return { _tag: "BreakerOpen", dependency: name, retryAfterMillis: breaker.retryAfterMillis(now) }
  }

  /** Into the gate, or the reason why not. */
  #enter(now: number): Rejected.Reason | undefined {
    const { gate, name } = this.site
    const entry = gate.enter(this, now, this.#deadline - this.#request.needsMillis)
    switch (entry._tag) {
      case "Granted":
        this.granted(now)
        return undefined
      case "Waiting":
        this.#phase = "waiting"
        this.#recorder.waiting++
        gate.alarm.set(this, this.#deadline)
        return undefined
      case "QueueFull":
        return { _tag: "QueueFull", queue: name, capacity: entry.capacity }
      case "NeverFits":
        return { _tag: "NeverFits", dependency: name, rate: entry.rate, cost: entry.cost, capacity: entry.capacity }
      case "TooLate":
        return tooLate(this.#request.needsMillis + entry.waitMillis, this.#deadline - now)
    }
  }

  unfit(entry: Unfit, now: number): void {
    this.#phase = "done"
    this.#recorder.waiting--
    this.site.gate.alarm.unset(this)
    this.#settle(zero, now)
    this.#refuse({
      _tag: "NeverFits",
      dependency: this.site.name,
      rate: entry.rate,
      cost: entry.cost,
      capacity: entry.capacity
    })
  }

  granted(now: number): void {
    if (this.#phase === "waiting") {
      this.#recorder.waiting--
      this.site.gate.alarm.unset(this)
    }
    const limit = Math.min(this.#request.timeoutMillis, this.#deadline - now)
    const refusal = this.#beforeStart(limit, now)
    if (refusal !== undefined) {
      this.site.gate.leave(this, 0, now)
      this.#settle(zero, now)
      return this.#refuse(refusal)
    }
    this.#phase = "running"
    this.#sent = undefined
    this.#startedMillis = now
    this.#recorder.enter()
    this.site.gate.alarm.set(this, now + limit)
    let context = Context.add(this.#context, CurrentCall, this as unknown as Call)
    // The caller's context has it already, unless it is a stranger's; a context copies itself when it gets deep.
    if (this.#envelope !== undefined && Context.get(context, CurrentEnvelope) !== this.#envelope) {
      context = Context.add(context, CurrentEnvelope, this.#envelope)
    }
    this.#worker = Effect.runForkWith(context)(this.#work)
    this.#worker.addObserver((exit) => this.#ended(exit, this.site.gate.alarm.now))
  }

  /** The world may have changed while it waited: told to stop, or the breaker is open and this is not the probe. */
  #beforeStart(limitMillis: number, now: number): Rejected.Reason | undefined {
    if (limitMillis <= 0) return tooLate(this.#request.needsMillis, limitMillis)
    if (this.#envelope !== undefined && Envelope.node(this.#envelope).isStopping) return { _tag: "Draining" }
    const { breaker, name } = this.site
    if (breaker === undefined) return undefined
    this.#leave = breaker.admit(now, limitMillis)
    if (this.#leave !== undefined) return undefined
    return { _tag: "BreakerOpen", dependency: name, retryAfterMillis: breaker.retryAfterMillis(now) }
  }

  /** The first token of a streamed answer has come: how long that took says whether calls wait inside the provider. */
  firstToken(now: number): void {
    if (this.#phase === "running") this.site.gate.firstToken(this.#startedMillis, now)
  }

  ring(now: number): void {
    switch (this.#phase) {
      case "waiting":
        this.#leaveLine(now)
        return this.#refuse(tooLate(this.#request.needsMillis, this.#deadline - now))
      case "running":
        return this.#stop(now >= this.#deadline ? "deadline" : "timeout", now)
      case "ending":
        return this.#abandon(now)
    }
  }

  /** What the caller's interruption runs: out of the line, or stop the work and wait for its end within the grace. */
  readonly cancel: Effect.Effect<void> = Effect.suspend(() => {
    const now = this.site.gate.alarm.now
    if (this.#phase === "waiting") this.#leaveLine(now)
    if (this.#phase !== "running" && this.#phase !== "ending") return Effect.void
    return Effect.callback<void>((resume) => {
      // The fiber may have yielded since it looked, and the work have ended meanwhile.
      if (this.#phase !== "running" && this.#phase !== "ending") return resume(Effect.void)
      this.#released = () => resume(Effect.void)
      if (this.#phase === "running") this.#stop("caller", now)
    })
  })

  #leaveLine(now: number): void {
    this.#phase = "done"
    this.#recorder.waiting--
    this.site.gate.alarm.unset(this)
    this.site.gate.cancel(this, now)
    this.#settle(zero, now)
  }

  #stop(cut: Cut, now: number): void {
    this.#cut = cut
    this.#phase = "ending"
    // What the cut says of the dependency is known now; its end may never come.
    if (cut === "timeout") this.site.gate.lost(this.#startedMillis, now)
    this.#tellBreaker(cut === "timeout" ? Outcome.failure : Outcome.ignored, now)
    this.site.gate.alarm.set(this, now + this.site.graceMillis)
    this.#worker?.interruptUnsafe()
  }

  /** The grace is over and the work runs on: its caller goes, its slot stays, its cost is unknown. */
  #abandon(now: number): void {
    this.#phase = "zombie"
    this.site.gate.zombies++
    this.#settle(undefined, now)
    if (this.#envelope !== undefined) {
      this.#recorder.emit({
        _tag: "Zombie",
        atMillis: now,
        task: this.#envelope.task,
        node: this.#envelope.id,
        dependency: this.site.name
      })
    }
    this.#finish(this.#cutExit())
  }

  #ended(exit: Exit.Exit<A, E>, now: number): void {
    const { gate } = this.site
    const wasZombie = this.#phase === "zombie"
    if (wasZombie) gate.zombies--
    gate.alarm.unset(this)
    this.#recorder.leave()
    const { outcome, truth, told } = this.#read(exit)
    if (this.#cut === undefined) gate.learn(outcome, this.#startedMillis, now)
    gate.settle(this, truth?.tokens, now)
    this.#tellBreaker(outcome, now)
    if (outcome._tag === "Failure") this.#nameFailure(exit, now)
    const backInLine = outcome._tag === "Throttled" && this.#throttledAgain(outcome, now)
    if (!backInLine) {
      this.#settle(truth, now)
      if (wasZombie) this.#phase = "done"
      else this.#finish(this.#cut === undefined ? told : this.#cutExit())
    }
    gate.advance(now)
  }

  #tellBreaker(outcome: Outcome.Outcome, now: number): void {
    const leave = this.#leave
    if (leave === undefined) return
    this.#leave = undefined
    const moved = this.site.breaker?.record(leave, outcome, now)
    if (moved === undefined || this.#envelope === undefined) return
    const at = { atMillis: now, task: this.#envelope.task, node: this.#envelope.id }
    this.#recorder.emit({ _tag: "BreakerMoved", ...at, dependency: this.site.name, from: moved.from, to: moved.to })
  }

  /** Pauses the gate and puts the call back in line, if its deadline and the retry budget allow. */
  #throttledAgain(outcome: Outcome.Outcome & { readonly _tag: "Throttled" }, now: number): boolean {
    this.#pause(outcome, now)
    // A wait that does not fit is no retry, and must not be paid for.
    const startsAt = now + this.site.gate.snapshot(now).pausedMillis
    if (this.#phase !== "running" || startsAt > this.#deadline - this.#request.needsMillis) return false
    if (!this.#retries.withdraw(1, now)) return false
    this.state = "new"
    this.#phase = "new"
    if (this.#enter(now) !== undefined) return false
    Attempts.again(this.#recorder.attempts, this.site.layer)
    return true
  }

  /** What fails for many is named once, by what it is and not by what it said. */
  #nameFailure(exit: Exit.Exit<A, E>, now: number): void {
    if (this.#envelope === undefined) return
    const { operation } = this.#request
    const kind = this.#cut === "timeout" ? "TimedOut" : kindOf(exit)
    const found = note(this.#recorder.failures, `${this.site.name} ${operation} ${kind}`, this.#envelope.id, now)
    if (found === undefined) return
    const at = { atMillis: now, task: this.#envelope.task, node: this.#envelope.id }
    this.#recorder.emit({ _tag: "CommonFailure", ...at, dependency: this.site.name, operation, kind, ...found })
  }

  /** A request went out on the wire; the same one twice within a call means that a layer below retries. */
  sent(key: string, now: number): void {
    const sent = (this.#sent ??= new Map<string, number>())
    const times = (sent.get(key) ?? 0) + 1
    if (sent.size < 64 || times > 1) sent.set(key, times)
    const layer = `wire ${this.site.name}`
    if (times === 1) return Attempts.first(this.#recorder.attempts, layer)
    Attempts.again(this.#recorder.attempts, layer)
    if (this.#envelope === undefined) return
    const at = { atMillis: now, task: this.#envelope.task, node: this.#envelope.id }
    const { operation } = this.#request
    this.#recorder.emit({ _tag: "LayerRetried", ...at, dependency: this.site.name, operation, times })
  }

  /** A throttle pauses the whole gate: never shorter than asked, a little longer so that callers do not come back as one. */
  #pause(outcome: Outcome.Outcome & { readonly _tag: "Throttled" }, now: number): void {
    this.#recorder.throttled++
    const asked =
      outcome.retryAfter === undefined
        ? Math.min(maxPauseMillis, 1_000 * 2 ** this.#throttles)
        : Duration.toMillis(Duration.fromInputUnsafe(outcome.retryAfter))
    this.#throttles++
    const pausedMillis = asked * (1.1 + 0.15 * this.site.random())
    this.site.gate.pause(now + pausedMillis, now)
    if (this.#envelope === undefined) return
    this.#recorder.emit({
      _tag: "Throttled",
      atMillis: now,
      task: this.#envelope.task,
      node: this.#envelope.id,
      dependency: this.site.name,
      pausedMillis
    })
  }

  /** What the readers that came with the call say of its exit. One that throws is a defect of the call, and no leak. */
  #read(exit: Exit.Exit<A, E>): {
    readonly outcome: Outcome.Outcome
    readonly truth: Spend | undefined
    readonly told: Exit.Exit<A, E>
  } {
    try {
      const outcome = this.#outcomeOf(exit)
      const usage = this.#request.usage?.(exit)
      if (usage !== undefined) check(usage, `${this.site.name}.call: usage`)
      return { outcome, truth: usage ?? (outcome._tag === "Throttled" ? zero : undefined), told: exit }
    } catch (defect) {
      return { outcome: Outcome.ignored, truth: undefined, told: Exit.die(defect) }
    }
  }

  #outcomeOf(exit: Exit.Exit<A, E>): Outcome.Outcome {
    if (this.#cut !== undefined) return this.#cut === "timeout" ? Outcome.failure : Outcome.ignored
    const outcome = (this.#request.classify ?? this.site.classify)(exit)
    if (outcome._tag !== "Throttled" || outcome.retryAfter === undefined) return outcome
    return Outcome.throttled(clamped(Duration.toMillis(Duration.fromInputUnsafe(outcome.retryAfter))))
  }

  #settle(truth: Spend | undefined, now: number): void {
    const hold = this.#hold
    this.#hold = undefined
    if (hold !== undefined && this.#envelope !== undefined) holding.settle(this.#envelope, hold, truth, now)
  }

  #cutExit(): Exit.Exit<never, GaveUp.GaveUp> {
    return Exit.fail(
      this.#cut === "timeout"
        ? GaveUp.make({ _tag: "TimedOut", dependency: this.site.name, afterMillis: this.#request.timeoutMillis })
        : GaveUp.make({ _tag: "Expired", agent: this.#envelope?.agent ?? this.site.name })
    )
  }

  #refuse(reason: Rejected.Reason): void {
    this.#finish(Exit.fail(Rejected.make(reason, this.#envelope?.id)))
  }

  #finish(exit: Exit.Exit<A, Failure<E>>): void {
    if (this.#phase !== "zombie") this.#phase = "done"
    if (this.#released !== undefined) this.#released()
    else this.#resume(exit)
  }
}

const tooLate = (neededMillis: number, leftMillis: number): Rejected.Reason => ({
  _tag: "DeadlineExceeded",
  neededMillis,
  leftMillis: Math.max(0, leftMillis)
})
