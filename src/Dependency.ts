/**
 * Something downstream with limits of its own (a model provider, a tool, an API), and the way of one call to it.
 *
 * ```text
 * 1 envelope   past the deadline, or too little time left?       -> DeadlineExceeded, NoEnvelope
 * 2 budget     hold the upper bound                              -> BudgetExceeded, Unpriced
 * 3 breaker    open? say so at once, cheaply                     -> BreakerOpen
 * 4 gate       wait by priority for a slot and rates, together   -> QueueFull, NeverFits, DeadlineExceeded
 * 5 work       at most its time-out and the time left            -> its own error, TimedOut, Expired
 *   settle, once, in reverse: gate, breaker, budget
 * ```
 *
 * This is the only module that knows that order. The work runs in a fiber of its own, so that a time-out or an
 * interruption of the caller reaches it at once while its slot stays taken until it has really ended: work that ignores
 * interruption is waited for during a grace, then left alone and counted as a zombie. An answer that asks for less
 * (`Throttled`) pauses the gate and puts the call back in line, within its deadline; that is backpressure and no retry
 * of the agent's. A call that re-enters the dependency from inside its own slot takes no second one.
 *
 * Units: slots, tokens, micro-dollars; times are Effect durations.
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
import * as Random from "effect/Random"
import * as Stream from "effect/Stream"
import * as Breaker from "./Breaker.ts"
import * as Gate from "./Gate.ts"
import type { GaveUp } from "./GaveUp.ts"
import * as callMachine from "./internal/call.ts"
import * as CommonFailure from "./internal/commonFailure.ts"
import { CurrentTry } from "./internal/currentTry.ts"
import { millisOf } from "./internal/duration.ts"
import { Envelope, of } from "./internal/envelope.ts"
import { Recorder } from "./internal/recorder.ts"
import * as RetryAfter from "./internal/retryAfter.ts"
import * as Outcome from "./Outcome.ts"
import type { Rate } from "./Rate.ts"
import { isRejected, make as makeRejected, type Rejected } from "./Rejected.ts"
import * as Retry from "./Retry.ts"
import { CurrentRetryBudget } from "./RetryBudget.ts"
import * as Spend from "./Spend.ts"

/**
 * How calls to a dependency are governed.
 *
 * - `limit`: calls at once.
 * - `rates`: default none.
 * - `queue`: how many calls may wait; default 1 000.
 * - `maxAge`: after so long in line a call goes next, whatever its tier; default 60 seconds.
 * - `breaker`: when to stop calling, see {@link Breaker.Options}; default 5 failures in a row, open for 30 seconds.
 *   `false` for none.
 * - `timeout`: the longest one call may run; default 60 seconds, which is what the slowest useful answers of today's
 *   models take. `"Infinity"` for none.
 * - `grace`: how long a cut call may take to end before it is left alone as a zombie; default 5 seconds.
 * - `classify`: what an exit says of the dependency's health; default {@link Outcome.fromExit}.
 * - `standalone`: whether calls outside a fleet are allowed, at tier 3 and without a budget; default `false`, because an
 *   agent that lost its envelope must not have lost its limits with it.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options extends Gate.Options {
  readonly breaker?: Breaker.Options | false
  readonly timeout?: Duration.Input
  readonly grace?: Duration.Input
  readonly classify?: (exit: Exit.Exit<unknown, unknown>) => Outcome.Outcome
  readonly standalone?: boolean
}

/**
 * What one call needs.
 *
 * - `tokens`, `microDollars`: an upper bound, held before and settled after; absent tokens
 *   are 0. Tokens without money are of unknown price, which a money limit refuses (`Unpriced`); a call that states neither
 *   costs nothing.
 * - `usage`: what it really took; where it says `undefined`, or is absent, the whole hold is charged and the call counts
 *   as estimated. A throttled answer is taken to have cost nothing.
 * - `estimate`: how long it takes at least; refused at once when less time than that is left. Default 0.
 * - `timeout`, `classify`: in the place of the dependency's.
 * - `operation`: what it does, in a word; names it when it fails for many. Default `"call"`.
 * - `retry`: how often and how long to wait, where calls own retries (`retryOwner: "call"` of the fleet).
 *
 * @category models
 * @since 0.1.0
 */
export interface CallOptions<A, E> extends Spend.Spend {
  readonly usage?: (exit: Exit.Exit<A, E>) => Spend.Spend | undefined
  readonly estimate?: Duration.Input
  readonly operation?: string
  readonly retry?: Retry.Options<E | Rejected | GaveUp>
  readonly timeout?: Duration.Input
  readonly classify?: (exit: Exit.Exit<A, E>) => Outcome.Outcome
}

/**
 * A dependency at run time; provided by the `layer` of a {@link Service}.
 *
 * @category models
 * @since 0.1.0
 */
export interface Dependency {
  readonly name: string
  readonly call: <A, E, R>(
    effect: Effect.Effect<A, E, R>,
    options?: CallOptions<A, E>
  ) => Effect.Effect<A, E | Rejected | GaveUp, R>
  readonly snapshot: Effect.Effect<Snapshot>
  readonly override: (act: Breaker.Override) => Effect.Effect<Breaker.Transition | undefined>
  readonly reconfigure: (change: Reconfiguration) => Effect.Effect<void>
}

/**
 * The gate and the breaker at a moment.
 *
 * @category models
 * @since 0.1.0
 */
export interface Snapshot extends Gate.Snapshot {
  readonly breaker: Breaker.Snapshot | undefined
}

/**
 * What may change while calls run and wait: a fixed limit, and rates of the same units in the same order.
 *
 * @category models
 * @since 0.1.0
 */
export interface Reconfiguration {
  readonly limit?: number
  readonly rates?: ReadonlyArray<Rate>
}

/**
 * The class that {@link Service} makes: a context key with its layer and its calls.
 *
 * @category models
 * @since 0.1.0
 */
export interface ServiceClass<Self, Name extends string> extends Context.ServiceClass<
  Self,
  `espalier/Dependency/${Name}`,
  Dependency
> {
  readonly layer: Layer.Layer<Self>
  readonly call: <A, E, R>(
    effect: Effect.Effect<A, E, R>,
    options?: CallOptions<A, E>
  ) => Effect.Effect<A, E | Rejected | GaveUp, R | Self>
  readonly snapshot: Effect.Effect<Snapshot, never, Self>
  /**
   * Runs a stream of plain jobs through the dependency, without a tree: a full line makes the producer wait, failures go
   * to a sink with their reason, and nothing stops the rest. Outside a fleet the dependency must be `standalone`.
   */
  readonly process: <I, SE, SR, A, E, R, R2 = never>(
    stream: Stream.Stream<I, SE, SR>,
    handle: (item: I) => Effect.Effect<A, E, R>,
    options?: ProcessOptions<I, A, E, R2>
  ) => Effect.Effect<Processed, SE, SR | R | R2 | Self>
  readonly override: (act: Breaker.Override) => Effect.Effect<Breaker.Transition | undefined, never, Self>
  readonly reconfigure: (change: Reconfiguration) => Effect.Effect<void, never, Self>
}

/**
 * Makes a dependency whose timer lives in the scope. Most programs declare a {@link Service} instead.
 *
 * **Errors** a `RangeError` that names the option and the value, for an option out of range.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = Effect.fnUntraced(function* (name: string, options: Options) {
  const random = yield* Random.Random
  const nextDouble = (): number => random.nextDoubleUnsafe()
  const breaker = options.breaker === false ? undefined : Breaker.make(options.breaker ?? {}, nextDouble)
  const gate = yield* Gate.make(options, breaker)
  const site: callMachine.Site = {
    name,
    layer: `gate ${name}`,
    gate,
    breaker,
    timeoutMillis: millisOf(`Dependency ${name}: timeout`, options.timeout ?? "60 seconds"),
    graceMillis: millisOf(`Dependency ${name}: grace`, options.grace ?? "5 seconds"),
    recorder: new Recorder("standalone", () => {}, "nobody", CommonFailure.make()),
    random: nextDouble,
    classify: options.classify ?? Outcome.fromExit
  }
  return {
    name,
    call: (effect, callOptions = {}) => callWith(site, options.standalone ?? false, effect, callOptions),
    snapshot: Effect.sync(() => {
      const now = gate.alarm.now
      return { ...gate.snapshot(now), breaker: breaker?.snapshot(now) }
    }),
    override: (act) =>
      Effect.sync(() => {
        const now = gate.alarm.now
        const moved = breaker?.override(act, now)
        gate.advance(now)
        return moved
      }),
    reconfigure: (change) => Effect.sync(() => gate.reconfigure(change, gate.alarm.now))
  } satisfies Dependency as Dependency
})

const callWith = <A, E, R>(
  site: callMachine.Site,
  standalone: boolean,
  effect: Effect.Effect<A, E, R>,
  options: CallOptions<A, E>
): Effect.Effect<A, E | Rejected | GaveUp, R> => {
  Spend.make(options, `${site.name}.call`)
  const request: callMachine.Request<A, E> = {
    operation: options.operation ?? "call",
    bound: options,
    needsMillis: options.estimate === undefined ? 0 : millisOf(`${site.name}.call: estimate`, options.estimate),
    timeoutMillis:
      options.timeout === undefined ? site.timeoutMillis : millisOf(`${site.name}.call: timeout`, options.timeout),
    usage: options.usage,
    classify: options.classify
  }
  return Effect.withFiber((fiber) => {
    const envelope = of(fiber)
    if (envelope === undefined && !standalone)
      return Effect.fail(makeRejected({ _tag: "NoEnvelope", dependency: site.name }))
    const outer = fiber.getRef(callMachine.CurrentCall)
    const lender = callMachine.heldSlot(site, outer)
    const run = Effect.callback<A, E | Rejected | GaveUp>((resume) => {
      const now = site.gate.alarm.now
      // The call runs it under the caller's context with itself on top; providing that context here again would put the
      // outer call back in the place of this one.
      const work = effect as Effect.Effect<A, E>
      const call = new callMachine.Call<A, E>(
        site,
        envelope,
        request,
        work,
        fiber.context,
        outer,
        lender !== undefined,
        fiber.getRef(CurrentRetryBudget),
        now,
        resume
      )
      call.begin(now)
      return call.cancel
    })
    const once = lender === undefined ? run : lender.loan.withPermits(1)(run)
    const owns = fiber.getRef(CurrentTry) === undefined
    if (envelope === undefined || !owns || Envelope.recorder(envelope).retryOwner !== "call") return once
    return Retry.retrying(
      once,
      Retry.policyOf(`${site.name}.call: retry`, options.retry ?? {}),
      envelope,
      `call ${site.name}`
    )
  })
}

/**
 * What came of a pipeline: items that went through, and items that were handed to the sink.
 *
 * @category models
 * @since 0.1.0
 */
export interface Processed {
  readonly done: number
  readonly failed: number
}

/**
 * - `onFailure`: the sink; gets each item that failed or was refused, with its error. Default: it is only counted.
 * - `call`: what each item's call needs; see {@link CallOptions}.
 *
 * @category models
 * @since 0.1.0
 */
export interface ProcessOptions<I, A, E, R> {
  readonly onFailure?: (item: I, error: E | Rejected | GaveUp) => Effect.Effect<unknown, never, R>
  readonly call?: (item: I) => CallOptions<A, E>
}

/** What can run or wait at once; enough to keep the gate busy, and no more in memory. */
const roomOf = (options: Options): number => {
  const slots = options.limit._tag === "Fixed" ? options.limit.limit : options.limit.maximum
  return slots + Math.min(slots, options.queue ?? 1_000)
}

/** How long a producer looks away when others have filled the line. */
const lineFullPause = Duration.millis(50)

const processWith = <I, SE, SR, A, E, R, R2 = never>(
  dependency: Dependency,
  room: number,
  stream: Stream.Stream<I, SE, SR>,
  handle: (item: I) => Effect.Effect<A, E, R>,
  options: ProcessOptions<I, A, E, R2>
): Effect.Effect<Processed, SE, SR | R | R2> =>
  Effect.suspend(() => {
    let done = 0
    let failed = 0
    const one = (item: I): Effect.Effect<void, never, R | R2> =>
      Effect.matchEffect(dependency.call(handle(item), options.call?.(item) ?? {}), {
        onSuccess: () => Effect.sync(() => void done++),
        onFailure: (error) => {
          if (isRejected(error) && error.reason._tag === "QueueFull") {
            return Effect.andThen(Effect.sleep(lineFullPause), one(item))
          }
          failed++
          return Effect.asVoid(options.onFailure?.(item, error) ?? Effect.void)
        }
      })
    // As many items are out of the stream as can run or wait; the producer waits for the rest.
    return Effect.map(Stream.runDrain(Stream.mapEffect(stream, one, { concurrency: room, unordered: true })), () => ({
      done,
      failed
    }))
  })

/**
 * Declares a dependency as a service: `class Crm extends Dependency.Service<Crm>()("crm", { … }) {}`.
 *
 * **Errors** bad options throw a `RangeError` when the layer is built.
 *
 * **Example** (Eight calls at once, ten a second)
 *
 * ```ts
 * import { Effect, Schema } from "effect"
 * import * as Agent from "espalier/Agent"
 * import * as Dependency from "espalier/Dependency"
 * import * as Fleet from "espalier/Fleet"
 * import * as Limit from "espalier/Limit"
 * import * as Rate from "espalier/Rate"
 *
 * class Crm extends Dependency.Service<Crm>()("crm", {
 *   limit: Limit.fixed(8),
 *   rates: [Rate.perSecond(10)],
 *   queue: 100,
 *   timeout: "20 seconds"
 * }) {}
 *
 * const LookUp = Agent.make("LookUp", {
 *   input: Schema.String,
 *   output: Schema.String,
 *   run: (name) => Crm.call(Effect.succeed(`${name} grows pears`))
 * })
 * const { output } = await Effect.runPromise(
 *   Fleet.run(LookUp, "Espalier Ltd").pipe(Effect.provide([Fleet.layer(), Crm.layer]))
 * )
 * console.log(output) // => Espalier Ltd grows pears
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const Service =
  <Self>() =>
  <const Name extends string>(name: Name, options: Options): ServiceClass<Self, Name> => {
    const tag = Context.Service<Self, Dependency>()(`espalier/Dependency/${name}`)
    return Object.assign(tag, {
      layer: Layer.effect(tag, make(name, options)),
      call: <A, E, R>(effect: Effect.Effect<A, E, R>, callOptions?: CallOptions<A, E>) =>
        Effect.flatMap(tag, (dependency) => dependency.call(effect, callOptions)),
      snapshot: Effect.flatMap(tag, (dependency) => dependency.snapshot),
      process: <I, SE, SR, A, E, R, R2 = never>(
        stream: Stream.Stream<I, SE, SR>,
        handle: (item: I) => Effect.Effect<A, E, R>,
        processOptions: ProcessOptions<I, A, E, R2> = {}
      ) =>
        Effect.flatMap(tag, (dependency) => processWith(dependency, roomOf(options), stream, handle, processOptions)),
      override: (act: Breaker.Override) => Effect.flatMap(tag, (dependency) => dependency.override(act)),
      reconfigure: (change: Reconfiguration) => Effect.flatMap(tag, (dependency) => dependency.reconfigure(change))
    }) as unknown as ServiceClass<Self, Name>
  }

/**
 * Says from inside a streamed call that its first token has come. An adaptive limit learns from it whether calls wait
 * inside the provider; without it, it learns from throttles and time-outs alone.
 *
 * @category combinators
 * @since 0.1.0
 */
export const firstToken: Effect.Effect<void> = Effect.withFiber((fiber) => {
  const call = fiber.getRef(callMachine.CurrentCall)
  if (call !== undefined) call.firstToken(call.site.gate.alarm.now)
  return Effect.void
})

/**
 * Hands the headers of an answer to the dependency whose call this runs in: what the provider says is left of its
 * limits lowers the gate's own buckets, before a 429 comes. Reads `x-ratelimit-*`, `anthropic-ratelimit-*` and
 * `RateLimit`; ignores nonsense.
 *
 * @category combinators
 * @since 0.1.0
 */
export const advise = (header: (name: string) => string | undefined): Effect.Effect<void> =>
  Effect.withFiber((fiber) => {
    const call = fiber.getRef(callMachine.CurrentCall)
    if (call === undefined) return Effect.void
    const { gate } = call.site
    const { limits } = RetryAfter.parse(header, fiber.getRef(Clock.Clock).currentTimeMillisUnsafe())
    for (const { name, remaining, resetMillis } of limits) {
      const unit = name === "requests" ? "requests" : name === "tokens" ? "tokens" : undefined
      if (unit !== undefined && remaining !== undefined) gate.advise(unit, remaining, resetMillis, gate.alarm.now)
    }
    return Effect.void
  })

/**
 * Says from inside a call that a request goes out on the wire; `key` tells requests apart (its method, path and a hash of
 * its body). The same request twice within one call means that a layer below the owner retries: it is counted in the
 * retry tree and told as an event.
 *
 * @category combinators
 * @since 0.1.0
 */
export const sent = (key: string): Effect.Effect<void> =>
  Effect.withFiber((fiber) => {
    const call = fiber.getRef(callMachine.CurrentCall)
    if (call !== undefined) call.sent(key, call.site.gate.alarm.now)
    return Effect.void
  })
