/** Cases A43 to A45: throttles and retries of whole trees, counted where they cost something, in virtual time. */
import { assert, describe, it } from "@effect/vitest"
import { Cause, Clock, Effect, Exit, Schema, Stream } from "effect"
import { TestClock } from "effect/testing"
import * as Agent from "espalier/Agent"
import * as Dependency from "espalier/Dependency"
import type { Event } from "espalier/Event"
import * as Fault from "espalier/Fault"
import * as Fleet from "espalier/Fleet"
import * as Limit from "espalier/Limit"
import * as Rate from "espalier/Rate"
import * as Retry from "espalier/Retry"

const options = { limit: Limit.fixed(100), breaker: false, timeout: "5 minutes" } as const
class Api extends Dependency.Service<Api>()("api", options) {}

const flaky = Fault.disconnected("api")
const answered = (status: number, retryAfter?: string) =>
  Fault.openAi({
    dependency: "api",
    status,
    header: (name) => (name === "retry-after" ? retryAfter : undefined),
    nowWallMillis: 0
  })

const times = (count: number): ReadonlyArray<number> => Array.from({ length: count }, (_, index) => index)

/** Counts what reaches the wire, with the instants. */
const wire = <A, E>(answer: (attempt: number, now: number) => Effect.Effect<A, E>) => {
  const at: Array<number> = []
  const request = Effect.flatMap(Clock.currentTimeMillis, (now) => answer(at.push(now), now))
  return { at, request }
}

/** Runs it while so much virtual time passes, with the events of the fleet. */
const within = Effect.fnUntraced(function* <A, E>(
  duration: Parameters<typeof TestClock.adjust>[0],
  effect: Effect.Effect<A, E, Api | Fleet.Fleet>,
  fleet: Fleet.Options = {}
) {
  const events: Array<Event> = []
  const hearing = Effect.forkChild(
    Stream.runForEach(Fleet.events, (event) => Effect.sync(() => events.push(event))),
    { startImmediately: true }
  )
  const fiber = yield* Effect.forkChild(
    Effect.andThen(hearing, Effect.exit(effect)).pipe(
      // The reader of events gets its turn before it ends with the fleet.
      Effect.tap(() => Effect.sleep("1 millis")),
      Effect.provide([Fleet.layer(fleet), Api.layer])
    ),
    { startImmediately: true }
  )
  yield* TestClock.adjust(duration)
  const exit = fiber.pollUnsafe()
  assert(exit !== undefined && Exit.isSuccess(exit), "still running")
  return { exit: exit.value, events }
})

/** A provider that takes so many requests a second and says 429 to the others, with its wait. */
const limited = (perSecond: number, burst: number) => {
  let level = burst
  let seen = 0
  return wire((_attempt, now) => {
    level = Math.min(burst, level + ((now - seen) / 1_000) * perSecond)
    seen = now
    if (level < 1) return Effect.delay(Effect.fail(answered(429, "2")), "100 millis")
    level -= 1
    return Effect.sleep("1 second")
  })
}

describe("A43 throttles of a wide tree", () => {
  const Worker = (request: Effect.Effect<void, Fault.Fault>) =>
    Agent.make("Worker", {
      input: Schema.Int,
      output: Schema.Void,
      run: () => Effect.forEach(times(5), () => Api.call(request), { discard: true })
    })
  const Root = (request: Effect.Effect<void, Fault.Fault>) =>
    Agent.make("Root", {
      input: Schema.Void,
      output: Schema.Unknown,
      run: () => Agent.forEach(Worker(request), times(14), { supervisor: { intensity: 3, period: "1 minute" } })
    })

  it.effect("A43: 14 agents side by side on a limited API make few attempts too many, and no agents too many", () =>
    Effect.gen(function* () {
      const { at, request } = limited(2, 4)
      const { events, exit } = yield* within(
        "20 minutes",
        Fleet.run(Root(request), undefined, { deadline: "15 minutes" })
      )
      assert(Exit.isSuccess(exit))
      const { report } = exit.value
      const { Completed, Failed } = report.ended
      assert.strictEqual(Completed! + Failed!, 15)
      // What the tree wanted at most, and the retry budget on top.
      const wanted = 14 * 5
      assert.isAtMost(at.length, wanted + Math.max(3, wanted / 10) + 3)
      assert.strictEqual(report.nodes, 15)
      assert.strictEqual(events.filter((event) => event._tag === "Spawned").length, 15)
      for (const node of report.unfinished) assert.strictEqual(node.reason, "ModelOverloaded")
    })
  )

  it.effect("A43: at a rate that the provider bears all of it is done, with hardly a throttle", () =>
    Effect.gen(function* () {
      class Paced extends Dependency.Service<Paced>()("api", {
        ...options,
        rates: [Rate.perSecond(2, { headroom: 0.9 })]
      }) {}
      const { at, request } = limited(2, 4)
      const PacedRoot = Agent.make("Root", {
        input: Schema.Void,
        output: Schema.Int,
        run: () =>
          Effect.map(
            Agent.forEach(
              Agent.make("Worker", {
                input: Schema.Int,
                output: Schema.Void,
                run: () => Effect.forEach(times(5), () => Paced.call(request), { discard: true })
              }),
              times(14)
            ),
            (results) => results.completed.length
          )
      })
      const { exit } = yield* within("20 minutes", Effect.provide(Fleet.run(PacedRoot, undefined), Paced.layer))
      assert(Exit.isSuccess(exit))
      assert.strictEqual(exit.value.output, 14)
      assert.strictEqual(at.length, 70)
    })
  )
})

describe("A44 attempts at the wire", () => {
  const wanted = { orchestrator: 4, agent: 3, call: 2, nobody: 1 } as const
  for (const retryOwner of ["orchestrator", "agent", "call", "nobody"] as const) {
    it.effect(`A44: with ${retryOwner} as the owner there are ${wanted[retryOwner]} attempts, not 24`, () =>
      Effect.gen(function* () {
        const { at, request } = wire(() => Effect.andThen(Dependency.sent("POST /v1/x 1"), Effect.fail(flaky)))
        const Leaf = Agent.make("Leaf", {
          input: Schema.Void,
          output: Schema.Void,
          // Called by an agent: two retries of its own, one of the call.
          run: () => Retry.owned(Api.call(request, { retry: { times: 1 } }), { times: 2 })
        })
        const Root = Agent.make("Root", {
          input: Schema.Void,
          output: Schema.String,
          run: () =>
            Effect.map(
              Effect.exit(Agent.run(Leaf, undefined, { supervisor: { intensity: 3, period: "5 minutes" } })),
              (exit) => (Exit.isFailure(exit) ? String(Cause.squash(exit.cause)) : "done")
            )
        })
        const { events, exit } = yield* within("30 minutes", Fleet.run(Root, undefined), {
          retryOwner,
          retries: { reserve: 1_000 }
        })
        assert(Exit.isSuccess(exit))
        assert.strictEqual(at.length, wanted[retryOwner])
        const { report } = exit.value
        const product = report.retryTree.reduce((all, { factor }) => all * factor, 1)
        assert.approximately(product, at.length, 1e-9)
        assert.strictEqual(events.filter((event) => event._tag === "LayerRetried").length, 0)
      })
    )
  }

  it.effect(
    "A44: an agent that tries the run of a child again does not multiply what the child has tried already",
    () =>
      Effect.gen(function* () {
        const { at, request } = wire(() => Effect.fail(flaky))
        const Leaf = Agent.make("Leaf", {
          input: Schema.Void,
          output: Schema.Void,
          run: () => Retry.owned(Api.call(request), { times: 2 })
        })
        const Root = Agent.make("Root", {
          input: Schema.Void,
          output: Schema.Void,
          run: () => Retry.owned(Agent.run(Leaf, undefined), { times: 2 })
        })
        yield* within("30 minutes", Fleet.run(Root, undefined), { retryOwner: "agent", retries: { reserve: 1_000 } })
        assert.strictEqual(at.length, 3)
      })
  )

  it.effect("A44: what the gate tries again after a throttle is its own, and no layer below is blamed for it", () =>
    Effect.gen(function* () {
      const { at, request } = wire((attempt) =>
        Effect.andThen(
          Dependency.sent("POST /v1/x 1"),
          attempt <= 2 ? Effect.fail(answered(429, "1")) : Effect.succeed("done")
        )
      )
      const Root = Agent.make("Root", { input: Schema.Void, output: Schema.String, run: () => Api.call(request) })
      const { events, exit } = yield* within("1 minute", Fleet.run(Root, undefined))
      assert(Exit.isSuccess(exit))
      assert.strictEqual(at.length, 3)
      const tried = exit.value.report.retryTree.filter(({ again }) => again > 0)
      assert.deepStrictEqual(
        tried.map(({ again, factor, first }) => [first, again, factor]),
        [[1, 2, 3]]
      )
      assert.deepInclude(
        exit.value.report.retryTree.find(({ layer }) => layer === "wire api"),
        { first: 3, again: 0 }
      )
      assert.deepStrictEqual(
        events.filter(({ _tag }) => _tag === "LayerRetried"),
        []
      )
    })
  )

  it.effect("A44: a client that retries below the owner is told, with how often", () =>
    Effect.gen(function* () {
      const sdk = Effect.gen(function* () {
        for (const _ of times(3)) yield* Dependency.sent("POST /v1/x 1")
        yield* Dependency.sent("POST /v1/x 2")
      })
      const Root = Agent.make("Root", {
        input: Schema.Void,
        output: Schema.Void,
        run: () => Api.call(sdk, { operation: "chat" })
      })
      const { events, exit } = yield* within("1 minute", Fleet.run(Root, undefined))
      assert(Exit.isSuccess(exit))
      assert.deepStrictEqual(
        events.flatMap((event) =>
          event._tag === "LayerRetried" ? [[event.dependency, event.operation, event.times]] : []
        ),
        [
          ["api", "chat", 2],
          ["api", "chat", 3]
        ]
      )
      const layer = exit.value.report.retryTree.find((each) => each.layer === "wire api")
      assert.deepStrictEqual(layer, { layer: "wire api", first: 2, again: 2, factor: 2 })
    })
  )
})

describe("A45 Retry-After", () => {
  for (const status of [429, 529, 503, 500] as const) {
    it.effect(`A45: a wait of ${status} that fits is waited for, never less than told`, () =>
      Effect.gen(function* () {
        const { at, request } = wire((attempt) => (attempt === 1 ? Effect.fail(answered(status, "30")) : Effect.void))
        const Root = Agent.make("Root", {
          input: Schema.Void,
          output: Schema.Void,
          run: () => Retry.owned(Api.call(request), { base: "2 seconds" })
        })
        const { exit } = yield* within("5 minutes", Fleet.run(Root, undefined, { deadline: "1 minute" }))
        assert(Exit.isSuccess(exit))
        assert.strictEqual(at.length, 2)
        assert.isAtLeast(at[1]!, 30_000 * 1.1)
        assert.isAtMost(at[1]!, 30_000 * 1.25 + 1)
      })
    )

    it.effect(`A45: a wait of ${status} that does not fit the deadline fails now, and costs nobody a retry`, () =>
      Effect.gen(function* () {
        const { at, request } = wire(() => Effect.fail(answered(status, "90")))
        const Root = Agent.make("Root", {
          input: Schema.Void,
          output: Schema.Void,
          run: () => Retry.owned(Api.call(request))
        })
        const { exit } = yield* within(
          "1 second",
          Effect.gen(function* () {
            const before = (yield* Fleet.snapshot).retryBalance
            const ended = yield* Effect.exit(Fleet.run(Root, undefined, { deadline: "1 minute" }))
            return { ended, spent: before - (yield* Fleet.snapshot).retryBalance }
          })
        )
        assert(Exit.isSuccess(exit) && Exit.isFailure(exit.value.ended))
        assert.deepStrictEqual([at.length, exit.value.spent], [1, 0])
      })
    )
  }
})
