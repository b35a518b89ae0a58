/**
 * Measures how much a dependency bears, within a spend cap, and says what to configure.
 *
 * Limits that are guessed are wrong by factors. Too low, and paid-for capacity idles; too high, and calls queue inside
 * the provider, where nobody sees them. Here a representative request is run by more and more callers at once, half as
 * many again at each step, until more callers bring no more answers: the knee. Below it a queue is empty, above it only
 * the waiting grows. What to configure follows from the knee by Little's law (calls at once = rate x latency).
 *
 * ```text
 * one call alone -> step at `start` -> x1.5 -> x1.5 -> ... -> stop -> limit 0.9 of the knee, rate, queue
 *                   30 calls, two of each caller, and twice their median latency at least
 * stops at: < 5 % gain | > 1 % throttles | 1.5x time to first token | failures | the bounds: callers, spend, time
 * ```
 *
 * Runs beside everything else and before it: the request goes out ungoverned, in no gate and on no budget but `spend`.
 * It refuses to judge what it has not seen: a bucket of bursts larger than a run hides the rate behind it, and a limit
 * found at night is a limit of the night. `confidence` says what speaks against a result.
 *
 * Units: calls at once, calls per second, milliseconds, tokens, micro-dollars.
 *
 * **Errors** none of the request's: they are counted. A `RangeError` for an option out of range.
 *
 * Follows Little's law and Kleinrock's operating point (least latency at full throughput).
 *
 * @stability experimental
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import { nowUnsafe } from "./Deadline.ts"
import { finite, integer } from "./internal/number.ts"
import * as Outcome from "./Outcome.ts"
import * as Spend from "./Spend.ts"

/**
 * - `spend`: what the whole run may use, in tokens and micro-dollars; required, and `Spend.unlimited` has to be said. No
 *   call starts that could exceed it.
 * - `bound`: the most that one request may use; default the dearest one so far. With it, `spend` holds from the first
 *   call on; without it, the first call is measured and the cap can be exceeded by what later ones cost more.
 * - `start`: callers at once in the first step; default 1, an integer from 1 to `maxConcurrency`. Higher is quicker and
 *   must lie below the knee.
 * - `maxConcurrency`: where to stop in any case; default 100, an integer from 1 to 10 000. A hundred calls of a second
 *   each use most providers' whole quota.
 * - `tolerableDelay`: how long a call may wait in line; default 10 seconds, from 0 to 1 day. Decides the length of the
 *   queue and nothing else.
 * - `deadline`: how long the run may take; default 5 minutes, above 0 to 1 day. Requests that are still under way then are
 *   interrupted and charged at their bound.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options {
  readonly spend: Spend.Spend
  readonly bound?: Spend.Spend
  readonly start?: number
  readonly maxConcurrency?: number
  readonly tolerableDelay?: Duration.Input
  readonly deadline?: Duration.Input
}

/**
 * What a request says of itself: what it used, and for a streamed answer how long the first token took.
 *
 * @category models
 * @since 0.1.0
 */
export interface Usage extends Spend.Spend {
  readonly firstTokenMillis?: number
}

/**
 * One measured step. `completions` are calls that ended while it ran, however they ended; the throughput and the
 * latencies are of those that succeeded. `firstTokenMillis` is a median, where the requests told it.
 *
 * @category models
 * @since 0.1.0
 */
export interface Step {
  readonly concurrency: number
  readonly completions: number
  readonly throughputPerSecond: number
  readonly p50Millis: number
  readonly meanMillis: number
  /** Standard deviation of the latency. */
  readonly deviationMillis: number
  readonly firstTokenMillis: number | undefined
  readonly throttledShare: number
  readonly failedShare: number
}

/**
 * Why a run ended.
 *
 * - `NoGain`: the last step brought less than 5 % more (in proportion where the step itself was smaller than half).
 * - `Throttled`: more than 1 % of its calls were asked to come back later.
 * - `Latency`: first tokens, or answers where no first token is told, took 1.5 times as long as at best.
 * - `Failing`: more than 10 % of its calls failed.
 * - `MaxConcurrency`: nothing of that happened up to `maxConcurrency`.
 * - `Spend`, `Deadline`: the cap would have been exceeded, or the time was over.
 * - `Unpriced`: `spend` caps a unit that neither the request nor `bound` tells.
 *
 * @category models
 * @since 0.1.0
 */
export type StoppedBy =
  | "NoGain"
  | "Throttled"
  | "Latency"
  | "Failing"
  | "MaxConcurrency"
  | "Spend"
  | "Deadline"
  | "Unpriced"

/**
 * What to do after some steps: another one, or stop.
 *
 * @category models
 * @since 0.1.0
 */
export type Decision =
  | { readonly _tag: "Measure"; readonly concurrency: number }
  | { readonly _tag: "Stop"; readonly stoppedBy: StoppedBy }

/**
 * What to configure. `limit` for `Limit.fixed` or as the `initial` of `Limit.adaptive`, `ratePerSecond` for
 * `Rate.perSecond`, `queue` for the gate. `littlesLawRatio` is throughput x latency / callers of the best step that was
 * not throttled; below 1 the callers themselves were the bottleneck.
 *
 * @category models
 * @since 0.1.0
 */
export interface Result {
  readonly limit: number
  readonly ratePerSecond: number
  readonly queue: number
  /** Calls at once at which the throughput stops growing. */
  readonly kneeConcurrency: number
  readonly confidence: "high" | "medium" | "low"
  /** Why the confidence is what it is, as a sentence. */
  readonly reason: string
  readonly littlesLawRatio: number
  readonly steps: ReadonlyArray<Step>
  readonly spent: Spend.Amount
  readonly stoppedBy: StoppedBy
}

/** Half as many again: fine enough to find the knee, and ten steps from 1 to 60. */
const growth = 1.5
/** Less gain than that from half as many callers again is noise. */
const leastGain = 0.05
const mostThrottled = 0.01
const mostFailed = 0.1
/** Queueing inside the provider shows as late first tokens; half as long again is beyond any jitter of a median. */
const mostLatency = 1.5
/** The share of the knee that is used, so that the provider's queue stays empty when latencies vary. */
const share = 0.9
/** Medians of thirty calls that vary more than this may be off by chance alone. */
const mostSpread = 0.3
const leastCompletions = 30
/** Where latencies vary much, a step goes on until their mean is right to this share, or to seven times as many calls. */
const enoughError = 0.1
const mostForError = 210
/** A request that takes no time at all must not fill a step for ever. */
const mostCompletions = 100_000

/** What more callers brought, beside what they would have brought below the knee. */
const gainOf = (before: Step, last: Step) => ({
  promised: last.concurrency / before.concurrency - 1,
  gained: last.throughputPerSecond / before.throughputPerSecond - 1
})

const middle = (values: ReadonlyArray<number>): number => median(values.toSorted((a, b) => a - b))

const signalOf = (step: Step): number => step.firstTokenMillis ?? step.p50Millis

/**
 * Decides what comes after the steps that were measured. Pure: the whole rule of when to go on.
 *
 * **Example** (Twice the callers and no more answers)
 *
 * ```ts
 * import * as Calibration from "espalier/Calibration"
 *
 * const step = (concurrency: number, throughputPerSecond: number): Calibration.Step => ({
 *   concurrency,
 *   completions: 30,
 *   throughputPerSecond,
 *   p50Millis: 100,
 *   meanMillis: 100,
 *   deviationMillis: 0,
 *   firstTokenMillis: undefined,
 *   throttledShare: 0,
 *   failedShare: 0
 * })
 * const bounds = { start: 1, maxConcurrency: 100 }
 * console.log(JSON.stringify(Calibration.decide([step(8, 80)], bounds))) // => {"_tag":"Measure","concurrency":12}
 * console.log(JSON.stringify(Calibration.decide([step(8, 80), step(12, 82)], bounds))) // => {"_tag":"Stop","stoppedBy":"NoGain"}
 * ```
 *
 * @category operations
 * @since 0.1.0
 */
export const decide = (
  steps: ReadonlyArray<Step>,
  bounds: { readonly start: number; readonly maxConcurrency: number }
): Decision => {
  const last = steps.at(-1)
  if (last === undefined) return { _tag: "Measure", concurrency: bounds.start }
  const stop = (stoppedBy: StoppedBy): Decision => ({ _tag: "Stop", stoppedBy })
  if (last.throttledShare > mostThrottled) return stop("Throttled")
  if (last.failedShare > mostFailed) return stop("Failing")
  const before = steps.at(-2)
  if (before !== undefined) {
    const usual = middle(steps.slice(0, -1).map(signalOf))
    if (signalOf(last) >= mostLatency * usual) return stop("Latency")
    const { gained, promised } = gainOf(before, last)
    if (gained < leastGain * Math.min(1, promised / (growth - 1))) return stop("NoGain")
  }
  if (last.concurrency >= bounds.maxConcurrency) return stop("MaxConcurrency")
  return { _tag: "Measure", concurrency: Math.min(bounds.maxConcurrency, Math.ceil(last.concurrency * growth)) }
}

const best = (steps: ReadonlyArray<Step>): Step | undefined =>
  steps.toSorted((a, b) => b.throughputPerSecond - a.throughputPerSecond)[0]

/** Mean latency while nothing queued inside the provider: of the steps whose median was near that of most. */
const calmMillis = (steps: ReadonlyArray<Step>): number => {
  const answered = steps.filter((step) => step.throughputPerSecond > 0)
  // The last step is the one that was too much.
  const usual = middle((answered.length > 1 ? answered.slice(0, -1) : answered).map((step) => step.p50Millis))
  const calm = answered.filter((step) => step.p50Millis <= 1.25 * usual)
  const calls = calm.reduce((sum, step) => sum + step.completions, 0)
  return calls === 0 ? 0 : calm.reduce((sum, step) => sum + step.meanMillis * step.completions, 0) / calls
}

/**
 * Derives what to configure from measured steps. Pure. `aloneMillis` is the latency of a single call before the first
 * step, `tolerableDelayMillis` the wait that the queue is made for.
 *
 * @category operations
 * @since 0.1.0
 */
export const conclude = (
  steps: ReadonlyArray<Step>,
  stoppedBy: StoppedBy,
  spent: Spend.Amount,
  measured: { readonly aloneMillis: number; readonly tolerableDelayMillis: number }
): Result => {
  const top = best(steps)
  const [first] = steps
  const last = steps.at(-1)
  const outcome = { steps, spent, stoppedBy }
  if (first === undefined || last === undefined || top === undefined || top.throughputPerSecond === 0) {
    const nothing = { limit: 1, ratePerSecond: 0, queue: 0, kneeConcurrency: 0, littlesLawRatio: 0 }
    return { ...nothing, confidence: "low", reason: "no call was answered in any step", ...outcome }
  }
  const calm = calmMillis(steps)
  // One call alone is a poor measure, so it only speaks against a start that skipped better ones.
  const startedAbove = first.concurrency > 1 && calm > mostLatency * measured.aloneMillis
  const latency = startedAbove ? measured.aloneMillis : calm
  const kneeConcurrency = Math.min(top.concurrency, (top.throughputPerSecond * latency) / 1_000)
  const ratePerSecond = share * top.throughputPerSecond
  const basis = best(steps.filter((step) => step.throttledShare <= mostThrottled)) ?? top
  const littlesLawRatio = (basis.throughputPerSecond * basis.meanMillis) / 1_000 / basis.concurrency
  const { gained, promised } = gainOf(steps.at(-2) ?? last, last)
  const off = Math.abs(littlesLawRatio - 1)
  const spread = first.deviationMillis / first.meanMillis
  const law = `callers, rate and latency disagree by ${percent(off)}`
  const doubts: ReadonlyArray<readonly [applies: boolean, confidence: "low" | "medium", reason: string]> = [
    [stoppedBy === "Failing", "low", `more than ${percent(mostFailed)} of the calls failed`],
    [stoppedBy === "Spend", "low", "the spend cap came before the knee"],
    [stoppedBy === "Deadline", "low", "the deadline came before the knee"],
    [stoppedBy === "Unpriced", "low", "a capped unit was told by nobody"],
    [off > 0.25, "low", law],
    [stoppedBy === "MaxConcurrency", "medium", "the knee lies above maxConcurrency"],
    [stoppedBy === "Throttled", "medium", "found by being throttled; a burst allowance may hide a lower rate"],
    [stoppedBy === "Latency" && gained > promised / 2, "medium", "answers came later, but their number still grew"],
    [startedAbove, "medium", "start was above the knee; run again from 1"],
    [off > 0.1, "medium", law],
    [spread > mostSpread, "medium", `latencies vary by ${percent(spread)}; a second run would tell`]
  ]
  const [, confidence, reason] = doubts.find(([applies]) => applies) ?? [true, "high", "the knee was passed"]
  // A hair is added, because 0.9 of 20 is 17.999 in binary fractions.
  const limit = Math.max(1, Math.floor(share * kneeConcurrency + 1e-6))
  const queue = Math.min(10_000_000, Math.floor((ratePerSecond * measured.tolerableDelayMillis) / 1_000 + 1e-6))
  return { limit, ratePerSecond, queue, kneeConcurrency, littlesLawRatio, confidence, reason, ...outcome }
}

const percent = (value: number): string => `${Math.round(100 * value)} %`

const units = ["tokens", "microDollars"] as const

const each = (of: (unit: (typeof units)[number]) => number): Spend.Amount => ({
  tokens: of("tokens"),
  microDollars: of("microDollars")
})

const millisOf = (option: string, input: Duration.Input, least: number): number =>
  finite(`Calibration.run: ${option} in ms`, Duration.toMillis(Duration.fromInputUnsafe(input)), least, 86_400_000)

type Plan = ReturnType<typeof planOf>

const planOf = (options: Options) => {
  const maxConcurrency = integer("Calibration.run: maxConcurrency", options.maxConcurrency ?? 100, 1, 10_000)
  const bound = Spend.make(options.bound ?? Spend.unlimited, "Calibration.run: bound")
  const spend = Spend.make(options.spend, "Calibration.run: spend")
  return {
    spend,
    // Where nothing is known, a call costs at least 1: a cap of 0 lets none start.
    bound: each((unit) => bound[unit] ?? (spend[unit] === undefined ? 0 : 1)),
    /** Capped units that nobody tells unless the requests do. */
    asks: units.filter((unit) => spend[unit] !== undefined && bound[unit] === undefined),
    start: integer("Calibration.run: start", options.start ?? 1, 1, maxConcurrency),
    maxConcurrency,
    tolerableDelayMillis: millisOf("tolerableDelay", options.tolerableDelay ?? "10 seconds", 0),
    deadlineMillis: millisOf("deadline", options.deadline ?? "5 minutes", 1)
  }
}

/** An amount that can be booked; what a request tells may be anything. */
const told = (usage: Spend.Spend | undefined, unit: (typeof units)[number]): number | undefined => {
  const amount = usage?.[unit]
  return amount !== undefined && Number.isSafeInteger(amount) && amount >= 0 ? amount : undefined
}

/** The books of a run: what is held by calls under way is not free. */
class Books {
  spent: Spend.Amount = Spend.zero
  #held: Spend.Amount = Spend.zero
  #dearest: Spend.Amount
  readonly #plan: Plan

  constructor(plan: Plan) {
    this.#plan = plan
    this.#dearest = plan.bound
  }

  /** Sets the most that a call may use aside; `undefined` when the cap would not cover it. */
  hold(): Spend.Amount | undefined {
    const held = Spend.add(this.#held, this.#dearest)
    if (units.some((unit) => this.spent[unit] + held[unit] > (this.#plan.spend[unit] ?? Infinity))) return undefined
    this.#held = held
    return this.#dearest
  }

  /** Replaces a hold by the truth, and by itself where that is not told; says whether all was told that must be. */
  settle(hold: Spend.Amount, usage: Spend.Spend | undefined): boolean {
    const truth = each((unit) => told(usage, unit) ?? hold[unit])
    this.#held = each((unit) => this.#held[unit] - hold[unit])
    this.spent = Spend.add(this.spent, truth)
    this.#dearest = each((unit) => Math.max(this.#dearest[unit], truth[unit]))
    return this.#plan.asks.every((unit) => told(usage, unit) !== undefined)
  }
}

/** One step while it runs. */
class Running {
  readonly concurrency: number
  readonly begunMillis: number
  /** Enough calls have ended, or no more will. */
  readonly over = Deferred.makeUnsafe<void>()
  /** Latencies of calls that were answered, and began in this step; ascending. */
  readonly #latencies: Array<number> = []
  readonly #firstTokens: Array<number> = []
  /** When answers came, since the step began. */
  readonly #answers: Array<number> = []
  isOver = false
  #ended = 0
  #throttled = 0
  #failed = 0

  constructor(concurrency: number, nowMillis: number) {
    this.concurrency = concurrency
    this.begunMillis = nowMillis
  }

  ended(outcome: Outcome.Outcome, startedMillis: number, nowMillis: number, usage: Usage | undefined): void {
    this.#ended++
    if (outcome._tag === "Throttled") this.#throttled++
    else if (outcome._tag !== "Success") this.#failed++
    else {
      this.#answers.push(nowMillis - this.begunMillis)
      if (startedMillis >= this.begunMillis) {
        insert(this.#latencies, nowMillis - startedMillis)
        if (Number.isFinite(usage?.firstTokenMillis)) insert(this.#firstTokens, Number(usage?.firstTokenMillis))
      }
    }
    if (this.#isEnough(nowMillis - this.begunMillis)) this.close()
  }

  #isEnough(elapsedMillis: number): boolean {
    if (this.#ended >= mostCompletions) return true
    // Whole rounds of all callers, and two at least: callers that started as one also end as one.
    if (this.#ended < this.concurrency * Math.max(2, Math.ceil(leastCompletions / this.concurrency))) return false
    if (elapsedMillis <= 0 || elapsedMillis < 2 * median(this.#latencies)) return false
    // Calls from before the step must not be all there is to judge it by.
    if (this.#latencies.length === 0) return this.#answers.length === 0
    const { deviation, mean } = momentsOf(this.#latencies)
    return this.#ended >= mostForError || deviation <= enoughError * mean * Math.sqrt(this.#latencies.length)
  }

  get hasEnded(): boolean {
    return this.#ended > 0
  }

  close(): void {
    this.isOver = true
    Deferred.doneUnsafe(this.over, Effect.void)
  }

  /** Answers that came as one are not torn apart: so long a step waits for the rest of them. */
  get gapMillis(): number {
    return 0.02 * median(this.#latencies)
  }

  measured(): Step {
    const latencies = this.#latencies
    const { deviation, mean } = momentsOf(latencies)
    return {
      concurrency: this.concurrency,
      completions: this.#ended,
      throughputPerSecond: 1_000 * slopeOf(this.#answers),
      p50Millis: median(latencies),
      meanMillis: mean,
      deviationMillis: deviation,
      firstTokenMillis: this.#firstTokens.length === 0 ? undefined : median(this.#firstTokens),
      throttledShare: this.#throttled / Math.max(1, this.#ended),
      failedShare: this.#failed / Math.max(1, this.#ended)
    }
  }
}

/**
 * How many answers came per millisecond: the slope of the line through them. Answers come in clumps, and a count over the
 * time would be off by as much as the clump at its end.
 */
const slopeOf = (ascending: ReadonlyArray<number>): number => {
  const { deviation, mean } = momentsOf(ascending)
  const middleIndex = (ascending.length - 1) / 2
  const covariance = ascending.reduce((sum, time, index) => sum + (time - mean) * (index - middleIndex), 0)
  if (deviation > 0) return covariance / (deviation ** 2 * (ascending.length - 1))
  return ascending.length / Math.max(1e-3, mean)
}

const momentsOf = (values: ReadonlyArray<number>): { readonly mean: number; readonly deviation: number } => {
  const mean = values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length)
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0)
  return { mean, deviation: Math.sqrt(squares / Math.max(1, values.length - 1)) }
}

const insert = (ascending: Array<number>, value: number): void => {
  const after = ascending.findLastIndex((other) => other <= value)
  ascending.splice(after + 1, 0, value)
}

/** The lower one of the two in the middle; 0 of none. */
const median = (ascending: ReadonlyArray<number>): number => ascending[(ascending.length - 1) >> 1] ?? 0

/** A run while it goes on: its books, its steps, its callers. Every move is synchronous. */
class Run {
  readonly steps: Array<Step> = []
  readonly books: Books
  readonly idle = Deferred.makeUnsafe<void>()
  readonly #plan: Plan
  readonly #clock: Clock.Clock
  running: Running | undefined
  stoppedBy: StoppedBy | undefined
  /** What a call took before anybody called beside it. */
  aloneMillis = Infinity
  callers = 0
  #pausing = 0
  #underWay = 0

  constructor(plan: Plan, clock: Clock.Clock) {
    this.#plan = plan
    this.#clock = clock
    this.books = new Books(plan)
  }

  get now(): number {
    return nowUnsafe(this.#clock)
  }

  /** The hold of one more call, if one may start. */
  begin(): Spend.Amount | undefined {
    if (this.stoppedBy !== undefined) return undefined
    const hold = this.books.hold()
    if (hold === undefined) this.stop("Spend")
    else this.#underWay++
    return hold
  }

  /** A call has ended; how long its caller should stay away. */
  ended(hold: Spend.Amount, startedMillis: number, exit: Exit.Exit<Usage, unknown>): void {
    const now = this.now
    const outcome = Outcome.fromExit(exit)
    const usage = exit._tag === "Success" ? exit.value : outcome._tag === "Throttled" ? Spend.zero : undefined
    const isTold = this.books.settle(hold, usage)
    this.#underWay--
    if (this.callers === 0 && outcome._tag === "Success") this.aloneMillis = now - startedMillis
    this.running?.ended(outcome, startedMillis, now, exit._tag === "Success" ? exit.value : undefined)
    if (exit._tag === "Success" && !isTold) this.stop("Unpriced")
    this.#rest()
  }

  /** A throttled caller stays away as long as it was asked to, at least for a call's time: the others go on. */
  pause(outcome: Outcome.Outcome & { readonly _tag: "Throttled" }): Effect.Effect<void> {
    const asked = outcome.retryAfter === undefined ? 0 : Duration.toMillis(Duration.fromInputUnsafe(outcome.retryAfter))
    const usual = this.aloneMillis === Infinity ? 1_000 : this.aloneMillis
    this.#pausing++
    if (this.#pausing >= this.callers) this.running?.close()
    return Effect.andThen(
      Effect.sleep(Duration.millis(Math.max(asked, usual))),
      Effect.sync(() => void this.#pausing--)
    )
  }

  /** Notes the step that has ended, if any, and begins what comes after it. */
  next(): void {
    if (this.stoppedBy !== undefined) return
    if (this.running !== undefined) this.steps.push(this.running.measured())
    const decision = decide(this.steps, this.#plan)
    this.running = decision._tag === "Measure" ? new Running(decision.concurrency, this.now) : undefined
    if (decision._tag === "Stop") this.stop(decision.stoppedBy)
  }

  /** Ends the run from outside of the steps. */
  stop(stoppedBy: StoppedBy): void {
    if (this.stoppedBy !== undefined) return
    this.stoppedBy = stoppedBy
    const { running, steps } = this
    // A step that was cut short says more than nothing, and less than a whole one.
    if (running !== undefined && (running.isOver || (steps.length === 0 && running.hasEnded)))
      steps.push(running.measured())
    running?.close()
    this.#rest()
  }

  #rest(): void {
    if (this.stoppedBy !== undefined && this.#underWay === 0) Deferred.doneUnsafe(this.idle, Effect.void)
  }
}

/** One call, settled on whatever exit. */
const once = <E, R>(run: Run, call: Effect.Effect<Usage, E, R>, hold: Spend.Amount) =>
  Effect.suspend(() => {
    const started = run.now
    return Effect.exit(Effect.onExit(call, (exit) => Effect.sync(() => run.ended(hold, started, exit))))
  })

/** One call, and its pause after a throttle; whether another may follow. */
const visit = <E, R>(run: Run, call: Effect.Effect<Usage, E, R>) =>
  Effect.gen(function* () {
    const hold = run.begin()
    if (hold === undefined) return false
    const outcome = Outcome.fromExit(yield* once(run, call, hold))
    if (outcome._tag === "Throttled") yield* run.pause(outcome)
    return true
  })

/**
 * Measures a dependency with a request that is representative of the work to come, and that goes out ungoverned: it
 * succeeds with what it used. Its failures are classified as `Outcome.fromExit` does, so errors of `Fault` are understood.
 *
 * **Details** one call alone first: it warms up the connection and tells what a call takes and costs. Callers are added
 * from step to step without a break, so that no step begins idle. Where latencies vary much a step goes on until their
 * mean is right to 10 %, or to 210 calls. A throttled caller stays away as long as it was asked to. When the run stops,
 * calls under way are let end, within the deadline.
 *
 * **Gotchas** the requests are real and are paid for, beside any fleet's budget. A run needs some 30 requests a step and
 * ten steps, or twice the callers a step where those are more than 15.
 *
 * **Errors** a `RangeError` for an option out of range.
 *
 * **Example** (A simulated provider that answers eight requests at once)
 *
 * ```ts
 * import { Effect, Fiber, Semaphore } from "effect"
 * import { TestClock } from "effect/testing"
 * import * as Calibration from "espalier/Calibration"
 *
 * const slots = Semaphore.makeUnsafe(8)
 * const request = Effect.sleep("500 millis").pipe(slots.withPermits(1), Effect.as({ tokens: 100 }))
 * const program = Effect.gen(function* () {
 *   const fiber = yield* Effect.forkChild(
 *     Calibration.run(request, { spend: { tokens: 50_000 }, bound: { tokens: 200 }, tolerableDelay: "5 seconds" })
 *   )
 *   yield* TestClock.adjust("5 minutes")
 *   return yield* Fiber.join(fiber)
 * })
 * const result = await Effect.runPromise(program.pipe(Effect.provide(TestClock.layer())))
 * console.log(result.limit, result.stoppedBy, result.confidence) // => 7 NoGain high
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const run = <E, R>(call: Effect.Effect<Usage, E, R>, options: Options): Effect.Effect<Result, never, R> => {
  const plan = planOf(options)
  return Effect.withFiber((fiber) => {
    const run = new Run(plan, fiber.getRef(Clock.Clock))
    const measuring = Effect.scopedWith((scope) => {
      const caller = Effect.repeat(visit(run, call), { while: (mayGoOn) => mayGoOn })
      const climb = Effect.gen(function* () {
        yield* visit(run, call)
        run.next()
        for (let step = run.running; step !== undefined && run.stoppedBy === undefined; step = run.running) {
          for (; run.callers < step.concurrency; run.callers++) yield* Effect.forkIn(caller, scope)
          yield* Deferred.await(step.over)
          yield* Effect.sleep(Duration.millis(step.gapMillis))
          run.next()
        }
        yield* Deferred.await(run.idle)
      })
      const late = () => Effect.sync(() => run.stop("Deadline"))
      return Effect.timeoutOrElse(climb, { duration: Duration.millis(plan.deadlineMillis), orElse: late })
    })
    // Only when the scope is closed are the last calls settled.
    return Effect.map(measuring, () =>
      conclude(run.steps, run.stoppedBy ?? "Deadline", run.books.spent, { ...plan, aloneMillis: run.aloneMillis })
    )
  })
}

/**
 * A result as plain text for a terminal: what to configure, how sure it is, and the steps behind it.
 *
 * @category formatting
 * @since 0.1.0
 */
export const format = (result: Result): string => {
  const { confidence, limit, littlesLawRatio, queue, ratePerSecond, reason, spent, steps, stoppedBy } = result
  const line = (cells: ReadonlyArray<string>): string => cells.map((cell) => cell.padStart(11)).join("")
  const row = (step: Step): string =>
    line([
      `${step.concurrency}`,
      `${step.completions}`,
      step.throughputPerSecond.toFixed(2),
      step.p50Millis.toFixed(0),
      `${(100 * step.throttledShare).toFixed(1)} %`
    ])
  return [
    `limit ${limit} calls at once, ${ratePerSecond.toFixed(2)} a second, ${queue} may wait`,
    `confidence ${confidence}: ${reason}`,
    `Little's law: rate x latency is ${littlesLawRatio.toFixed(2)} of the callers`,
    `stopped by ${stoppedBy} after ${steps.length} steps, ${spent.tokens} tokens and ${spent.microDollars} micro-dollars`,
    line(["callers", "calls", "per second", "p50 ms", "throttled"]),
    ...steps.map(row)
  ].join("\n")
}
