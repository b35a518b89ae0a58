/** Cases of section A on runaway spend, budget arithmetic, cancellation and limits that lose work: what must hold. */
import { assert, describe, it } from "@effect/vitest"
import { Cause, Effect, Exit, Fiber, Schema, Stream } from "effect"
import { TestClock } from "effect/testing"
import * as Agent from "espalier/Agent"
import * as Budget from "espalier/Budget"
import * as Dependency from "espalier/Dependency"
import * as Envelope from "espalier/Envelope"
import type { Event } from "espalier/Event"
import * as Fleet from "espalier/Fleet"
import { isGaveUp } from "espalier/GaveUp"
import * as Limit from "espalier/Limit"
import { isRejected, type Rejected } from "espalier/Rejected"

class Model extends Dependency.Service<Model>()("model", { limit: Limit.fixed(100), grace: "1 second" }) {}

type Any = Agent.Agent<any, any, any, any, any>

/** An agent whose code is given. */
const agent = <A, E, R>(
  name: string,
  run: (input: any, self: Agent.Self<string>) => Effect.Effect<A, E, R>,
  more: object = {}
) => Agent.make(name, { input: Schema.Any, output: Schema.Any, partial: Schema.String, run, ...more } as never) as Any

const start = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.forkChild(effect, { startImmediately: true })

/** Runs a root agent and listens to its events; time passes as far as it is told to. */
const run = (
  root: Any,
  options: Fleet.SubmitOptions & { readonly input?: unknown; readonly pass?: string } = {},
  fleet: Fleet.Options = {}
) =>
  Effect.gen(function* () {
    const { input, pass, ...submit } = options
    const events: Array<Event> = []
    yield* start(Stream.runForEach(Fleet.events, (event) => Effect.sync(() => events.push(event))))
    const handle = yield* Fleet.submit(root, input ?? null, submit)
    yield* TestClock.adjust((pass ?? "1 minute") as never)
    const exit = yield* handle.await
    const report = yield* handle.report
    const snapshot = yield* Fleet.snapshot
    const gate = yield* Model.snapshot
    assert.deepStrictEqual([snapshot.live, snapshot.places.inFlight, gate.inFlight], [0, 0, 0])
    return { exit, report, events }
  }).pipe(Effect.provide([Fleet.layer(fleet), Model.layer])) as Effect.Effect<{
    exit: Agent.Ended<any, any, any>
    report: import("espalier/Report").Report
    events: Array<Event>
  }>

const reasonOf = (exit: Exit.Exit<unknown, unknown>): Rejected["reason"] | undefined => {
  const error = Exit.isFailure(exit) ? Cause.findErrorOption(exit.cause) : undefined
  return error?._tag === "Some" && isRejected(error.value) ? error.value.reason : undefined
}
const call = (tokens: number, used: number | undefined, millis = 100) =>
  Model.call(Effect.sleep(millis), { tokens, usage: () => (used === undefined ? undefined : { tokens: used }) })

describe("runaway spend and recursion", () => {
  it.effect(
    "A1: agents that each spawn five of themselves meet the caps on depth, number and rate that are on by default",
    () =>
      Effect.gen(function* () {
        let spawned = 0
        const reasons = new Set<string | undefined>()
        const rabbit: Any = agent("Rabbit", (n: number) =>
          Effect.gen(function* () {
            spawned++
            for (let kid = 0; kid < 5; kid++) {
              const exit = yield* Effect.exit(Agent.spawn(rabbit, n * 5 + kid + 1))
              if (Exit.isFailure(exit)) reasons.add(reasonOf(exit)?._tag)
            }
            yield* Effect.sleep("1 hour")
          })
        )
        const { report } = yield* run(
          rabbit,
          { input: 0, deadline: "2 minutes", pass: "3 minutes" },
          { places: 100_000 }
        )
        assert.isAtMost(spawned, 10_001)
        assert.isTrue(reasons.has("SpawnRateExceeded"))
        assert.isAtMost(report.maxDepth, 16)
        assert.strictEqual(report.ended.Completed, 0)
      })
  )

  it.effect("A1: stopping the root stops all, at once and for good", () =>
    Effect.gen(function* () {
      let ticks = 0
      const leaf = agent("Leaf", () =>
        Effect.forever(
          Effect.andThen(
            Effect.sleep("1 second"),
            Effect.sync(() => ticks++)
          )
        )
      )
      const mid = agent("Mid", (n: number) => Agent.forEach(leaf, [n, n + 100, n + 200]))
      const root = agent("Root", () => Agent.forEach(mid, [1, 2, 3]))
      yield* Effect.gen(function* () {
        const handle = yield* Fleet.submit(root, null)
        yield* TestClock.adjust("5 seconds")
        yield* handle.stop
        const after = ticks
        yield* TestClock.adjust("1 hour")
        assert.strictEqual(ticks, after)
        const report = yield* handle.report
        assert.strictEqual(report.ended.Interrupted, report.nodes)
        assert.strictEqual((yield* Fleet.snapshot).live, 0)
      }).pipe(Effect.provide(Fleet.layer()))
    })
  )

  it.effect("A2, A5: one node has at most its width of children at once, and the same task given twice is told", () =>
    Effect.gen(function* () {
      const leaf = agent("Leaf", () => Effect.sleep("1 second"))
      const root = agent("Root", () =>
        Effect.gen(function* () {
          const exits = yield* Effect.forEach([1, 1, 2, 3], (n) => Effect.exit(Agent.spawn(leaf, n)))
          assert.strictEqual(reasonOf(exits[3]!)?._tag, "WidthExceeded")
        })
      )
      const { events } = yield* run(root, { width: 3 })
      assert.strictEqual(events.filter((event) => event._tag === "DuplicateSibling").length, 1)
    })
  )

  it.effect("A3, A13: the next call is refused before it is made, from the books", () =>
    Effect.gen(function* () {
      let made = 0
      const root = agent("Root", () =>
        Effect.forever(
          Model.call(
            Effect.sync(() => made++),
            { tokens: 30, usage: () => ({ tokens: 30 }) }
          )
        )
      )
      const { exit, report } = yield* run(root, { tokens: 100 })
      assert.strictEqual(made, 3)
      assert.strictEqual(report.subtree.tokens, 90)
      assert.include(exit._tag === "Failed" ? exit.reason : "", "BudgetExceeded: asked for 30 tokens, 10 free")
    })
  )

  it.effect("A4: agents cannot submit tasks of their own beside their tree", () =>
    Effect.gen(function* () {
      const other = agent("Other", () => Effect.void)
      const root = agent("Root", () =>
        Effect.gen(function* () {
          const missing = yield* Effect.exit(Fleet.run(other, null, { tokens: 1e9 }) as Effect.Effect<unknown>)
          assert.isTrue(Exit.isFailure(missing))
          const own = yield* Effect.exit(Fleet.run(other, null, { tokens: 1e9 }).pipe(Effect.provide(Fleet.layer())))
          assert.strictEqual(reasonOf(own)?._tag, "Nested")
        })
      )
      const { exit } = yield* run(root)
      assert.strictEqual(exit._tag, "Completed")
    })
  )

  it.effect("A6, A9, A10, A11: the same agent with the same task on the path is refused, and the path is named", () =>
    Effect.gen(function* () {
      const loops: Array<ReadonlyArray<string>> = []
      const ask = (to: () => Any) => (task: { topic: string; requestId: string }) =>
        Effect.gen(function* () {
          const exit = yield* Effect.exit(
            Agent.run(to(), { topic: ` ${task.topic.toUpperCase()}`, requestId: `${task.requestId}x` })
          )
          const reason = reasonOf(exit)
          if (reason?._tag === "DelegationLoop") loops.push(reason.path)
        })
      const a: Any = agent(
        "A",
        ask(() => b)
      )
      const b: Any = agent(
        "B",
        ask(() => a)
      )
      const { report } = yield* run(a, { input: { topic: "pears", requestId: "r-1" } })
      assert.deepStrictEqual(loops, [["A", "B", "A"]])
      assert.strictEqual(report.nodes, 3)
    })
  )

  it.effect("A8: a refusal is an answer that the model can be given, with what remains", () =>
    Effect.gen(function* () {
      const leaf = agent("Leaf", () => Effect.sleep("1 second"))
      const root = agent("Root", () =>
        Effect.gen(function* () {
          yield* Agent.spawn(leaf, 1)
          const rejected = yield* Effect.flip(Agent.spawn(leaf, 2))
          const result = yield* Agent.toolResult(rejected as Rejected)
          assert.strictEqual(result.reason, "WidthExceeded")
          assert.deepStrictEqual(result.remaining, { tokens: 500, seconds: 60 })
          assert.include(result.message, "wait for one to end")
        })
      )
      assert.strictEqual((yield* run(root, { width: 1, tokens: 500, deadline: "1 minute" })).exit._tag, "Completed")
    })
  )
})

describe("budget arithmetic", () => {
  it.effect("A14, A17: what a child is granted is gone from the parent's view when it is spawned", () =>
    Effect.gen(function* () {
      const child = agent("Child", () => Effect.map(Budget.remaining, ({ tokens }) => tokens))
      const root = agent("Root", () =>
        Effect.gen(function* () {
          const handle = yield* Agent.spawn(child, null, { tokens: 70 })
          const seen = yield* Budget.remaining
          const inside = yield* handle.join
          return [seen.tokens, inside, (yield* Budget.remaining).tokens]
        })
      )
      const { exit } = yield* run(root, { tokens: 100 })
      assert.deepStrictEqual(exit._tag === "Completed" ? exit.output : exit, [30, 70, 100])
    })
  )

  it.effect("A15, A23, F39: siblings that start together cannot each take the same remainder", () =>
    Effect.gen(function* () {
      let inside = 0
      const root = agent("Root", () =>
        Effect.map(
          Effect.forEach(
            Array.from({ length: 10 }),
            () =>
              Effect.exit(
                Model.call(
                  Effect.andThen(
                    Effect.sync(() => inside++),
                    Effect.sleep(10)
                  ),
                  { tokens: 30 }
                )
              ),
            {
              concurrency: "unbounded"
            }
          ),
          (exits) => exits.filter(Exit.isSuccess).length
        )
      )
      const { exit, report } = yield* run(root, { tokens: 100 })
      assert.deepStrictEqual(
        [exit._tag === "Completed" ? exit.output : exit, inside, report.subtree.tokens],
        [3, 3, 90]
      )
    })
  )

  it.effect("A18, A24, F40: a hold goes back on every way out, and the truth of what was cut is charged once", () =>
    Effect.gen(function* () {
      const root = agent("Root", () =>
        Effect.gen(function* () {
          const fibers = yield* Effect.forEach(Array.from({ length: 20 }), () =>
            start(Model.call(Effect.never, { tokens: 10, usage: () => ({ tokens: 2 }) }))
          )
          yield* Effect.sleep(10)
          yield* Effect.forEach(fibers, Fiber.interrupt)
          yield* Effect.exit(Model.call(Effect.fail("e"), { tokens: 10, usage: () => ({ tokens: 1 }) }))
          yield* Effect.exit(Model.call(Effect.die("d"), { tokens: 10, usage: () => ({ tokens: 1 }) }))
          yield* Effect.exit(
            Model.call(Effect.never, { tokens: 10, timeout: "1 second", usage: () => ({ tokens: 1 }) })
          )
          return (yield* Budget.remaining).tokens
        })
      )
      const { exit, report } = yield* run(root, { tokens: 1_000 })
      assert.deepStrictEqual([exit._tag === "Completed" ? exit.output : exit, report.subtree.tokens], [957, 43])
    })
  )

  it.effect("A19: a child that dies has its spending in its parent's books", () =>
    Effect.gen(function* () {
      const child = agent("Child", () => Effect.andThen(call(50, 40), Effect.die("bug")))
      const root = agent("Root", () =>
        Effect.exit(Agent.run(child, null, { tokens: 60, supervisor: { restart: "temporary" } }))
      )
      const { report } = yield* run(root, { tokens: 100 })
      assert.strictEqual(report.subtree.tokens, 40)
      assert.deepStrictEqual(
        report.nodeReports.map((node) => [node.agent, node.own.tokens, node.subtree.tokens]),
        [
          ["Child", 40, 40],
          ["Root", 0, 40]
        ]
      )
    })
  )

  it.effect("A20: what is kept for last words cannot be eaten by descendants", () =>
    Effect.gen(function* () {
      const child = agent("Child", () => Effect.forever(call(30, 30)))
      const root = agent(
        "Root",
        () =>
          Effect.gen(function* () {
            yield* Effect.exit(Agent.run(child, null, { supervisor: { restart: "temporary" } }))
            assert.strictEqual(reasonOf(yield* Effect.exit(call(20, 20)))?._tag, "BudgetExceeded")
            return yield* Effect.as(Agent.wrapUp(call(20, 20)), "the report")
          }),
        { reserve: { tokens: 20 } }
      )
      const { exit, report } = yield* run(root, { tokens: 110 })
      assert.deepStrictEqual(
        [exit._tag === "Completed" ? exit.output : exit, report.subtree.tokens],
        ["the report", 110]
      )
    })
  )

  it.effect(
    "A21, A40: an agent is not started with less than its estimate of tokens or time, and the rest says why",
    () =>
      Effect.gen(function* () {
        let started = 0
        const child = agent(
          "Child",
          () =>
            Effect.andThen(
              Effect.sync(() => started++),
              call(40, 40)
            ),
          { estimate: { tokens: 40, time: "5 seconds" } }
        )
        const root = agent("Root", () => Agent.forEach(child, [1, 2, 3, 4, 5]))
        const { exit } = yield* run(root, { tokens: 100 })
        const results = exit._tag === "Completed" ? exit.output : undefined
        assert.strictEqual(started, 2)
        assert.deepStrictEqual(
          [results.completed.length, results.unfinished.length, results.stopped._tag],
          [2, 3, "BudgetExceeded"]
        )
        const late = yield* run(root, { tokens: 1_000, deadline: "3 seconds" })
        assert.strictEqual(
          late.exit._tag === "Completed" ? late.exit.output.stopped._tag : late.exit,
          "DeadlineExceeded"
        )
      })
  )

  it.effect(
    "A25: closed means closed: without an envelope, or under a money limit without a price, nothing goes through",
    () =>
      Effect.gen(function* () {
        const outside = yield* Effect.exit(Model.call(Effect.void).pipe(Effect.provide(Model.layer)))
        assert.strictEqual(reasonOf(outside)?._tag, "NoEnvelope")
        const root = agent("Root", () => Effect.exit(Model.call(Effect.void, { tokens: 1 })))
        const { exit } = yield* run(root, { microDollars: 100 })
        assert.strictEqual(exit._tag === "Completed" ? reasonOf(exit.output)?._tag : exit, "Unpriced")
      })
  )

  it.effect("A29, A30: tokens and money have the same scope on every node: own, and with all below", () =>
    Effect.gen(function* () {
      const spend = (tokens: number, microDollars: number) =>
        Model.call(Effect.void, { tokens, microDollars, usage: () => ({ tokens, microDollars }) })
      const leaf = agent("Leaf", () => spend(5, 50))
      const root = agent("Root", () => Effect.andThen(spend(7, 70), Agent.forEach(leaf, [1, 2])))
      const { report } = yield* run(root)
      const top = report.nodeReports.find((node) => node.agent === "Root")!
      assert.deepStrictEqual(
        [top.own, top.subtree],
        [
          { tokens: 7, microDollars: 70 },
          { tokens: 17, microDollars: 170 }
        ]
      )
    })
  )

  it.effect(
    "F44: a grant beyond its parent's is refused at the tightest account, which is named; the rest returns once",
    () =>
      Effect.gen(function* () {
        const grandchild = agent("Grandchild", () => Effect.void)
        const child = agent("Child", () =>
          Effect.map(Effect.exit(Agent.spawn(grandchild, null, { tokens: 500 })), reasonOf)
        )
        const root = agent("Root", () => Effect.all([Agent.run(child, null, { tokens: 400 }), Budget.remaining]))
        const { exit } = yield* run(root, { tokens: 1_000 })
        const [reason, left] = exit._tag === "Completed" ? exit.output : []
        assert.deepStrictEqual(reason, {
          _tag: "BudgetExceeded",
          unit: "tokens",
          asked: 500,
          free: 400,
          account: "task-1/1",
          stopped: false
        })
        assert.strictEqual(left.tokens, 1_000)
      })
  )

  it.effect("law 2: what is reported beyond a hold is booked, told, charged upwards, and stops that node", () =>
    Effect.gen(function* () {
      const child = agent("Child", () => Effect.andThen(call(10, 90), call(1, 1)))
      const root = agent("Root", () =>
        Effect.all([Effect.exit(Agent.run(child, null, { tokens: 50 })), Budget.remaining])
      )
      const { exit, report, events } = yield* run(root, { tokens: 200 })
      const [result, left] = exit._tag === "Completed" ? exit.output : []
      assert.deepInclude(reasonOf(result), { _tag: "BudgetExceeded", stopped: true })
      assert.deepStrictEqual([left.tokens, report.subtree.tokens], [110, 90])
      assert.strictEqual(events.filter((event) => event._tag === "Overdrawn").length, 1)
    })
  )

  it.effect("F43: unlimited and 0 are different", () =>
    Effect.gen(function* () {
      const root = agent("Root", () => Effect.exit(call(1, 1)))
      const none = yield* run(root, { tokens: 0 })
      assert.strictEqual(
        none.exit._tag === "Completed" ? reasonOf(none.exit.output)?._tag : none.exit,
        "BudgetExceeded"
      )
      const unlimited = yield* run(root)
      assert.isTrue(unlimited.exit._tag === "Completed" && Exit.isSuccess(unlimited.exit.output))
    })
  )
})

describe("cancellation and orphans", () => {
  it.effect("A31, A34: a parent's end is its children's, each with one terminal record and a reason", () =>
    Effect.gen(function* () {
      let cleaned = 0
      const child = agent("Child", () => Effect.onInterrupt(Effect.never, () => Effect.sync(() => cleaned++)))
      const root = agent("Root", () =>
        Effect.andThen(
          Effect.forEach([1, 2, 3], (n) => Agent.spawn(child, n)),
          Effect.sleep("1 second")
        )
      )
      const { events, report } = yield* run(root)
      assert.strictEqual(cleaned, 3)
      const ends = events.filter((event) => event._tag === "Ended")
      assert.deepStrictEqual(ends.map((event) => event.state).sort(), [
        "Completed",
        "Interrupted",
        "Interrupted",
        "Interrupted"
      ])
      assert.isTrue(report.unfinished.every((node) => node.reason === "stopped from above"))
    })
  )

  it.effect("A33, F21: a time-out interrupts and is waited for; work that is deaf keeps its slot and is counted", () =>
    Effect.gen(function* () {
      let running = 0
      let peak = 0
      const work = (millis: number) =>
        Effect.acquireUseRelease(
          Effect.sync(() => (peak = Math.max(peak, ++running))),
          () => Effect.uninterruptible(Effect.sleep(millis)),
          () => Effect.sync(() => running--)
        )
      const deaf = yield* Dependency.make("deaf", { limit: Limit.fixed(1), timeout: 20, grace: 50, breaker: false })
      const root = agent("Root", () =>
        Effect.gen(function* () {
          const fibers = yield* Effect.forEach([1, 2, 3], () => start(Effect.exit(deaf.call(work(150)))))
          const exits = yield* Effect.forEach(fibers, Fiber.join)
          return exits.map((exit) => {
            const error = Exit.isFailure(exit) ? Cause.findErrorOption(exit.cause) : undefined
            return error?._tag === "Some" && isGaveUp(error.value) ? error.value.reason._tag : "ran"
          })
        })
      )
      const fiber = yield* start(run(root, { pass: "60 millis" }))
      yield* TestClock.adjust("75 millis")
      assert.strictEqual((yield* deaf.snapshot).zombies, 1)
      yield* TestClock.adjust("10 seconds")
      const { exit } = yield* Fiber.join(fiber)
      assert.deepStrictEqual(exit._tag === "Completed" ? exit.output : exit, ["TimedOut", "TimedOut", "TimedOut"])
      assert.deepStrictEqual([peak, running], [1, 0])
    }).pipe(Effect.scoped)
  )

  it.effect("A35: a failure that nobody waits for brings nothing down", () =>
    Effect.gen(function* () {
      const child = agent("Child", () => Effect.die(new Error("unseen")))
      const root = agent("Root", () =>
        Effect.andThen(
          Agent.spawn(child, 1, { supervisor: { restart: "temporary" } }),
          Effect.as(Effect.sleep("1 second"), "fine")
        )
      )
      const { exit } = yield* run(root)
      assert.deepStrictEqual(exit, { _tag: "Completed", output: "fine" })
    })
  )

  it.effect("F14: parents that wait hold no place: three with two children each finish on three, a chain on one", () =>
    Effect.gen(function* () {
      const leaf = agent("Leaf", () => Effect.sleep("10 millis"))
      const parent = agent("Parent", (n: number) => Agent.forEach(leaf, [n, n + 10]))
      const wide = yield* run(
        agent("Root", () => Agent.forEach(parent, [1, 2, 3])),
        {},
        { places: 3 }
      )
      assert.strictEqual(wide.report.ended.Completed, 10)
      const chain: Any = agent("Chain", (n: number) => (n === 0 ? Effect.void : Agent.run(chain, n - 1)))
      const deep = yield* run(chain, { input: 15 }, { places: 1 })
      assert.deepStrictEqual([deep.exit._tag, deep.report.maxDepth], ["Completed", 15])
    })
  )

  it.effect("F15: a call that re-enters its own dependency takes no second slot", () =>
    Effect.gen(function* () {
      const two = yield* Dependency.make("two", { limit: Limit.fixed(2), standalone: true })
      const fibers = yield* Effect.forEach([1, 2], () =>
        start(two.call(Effect.andThen(Effect.sleep(10), two.call(Effect.sleep(10)))))
      )
      yield* TestClock.adjust("1 second")
      yield* Effect.forEach(fibers, Fiber.join)
      assert.strictEqual((yield* two.snapshot).inFlight, 0)
    }).pipe(Effect.scoped)
  )

  it.effect("F15: re-entry three deep, and by way of another dependency, finishes on one slot each", () =>
    Effect.gen(function* () {
      const a = yield* Dependency.make("a", { limit: Limit.fixed(1), standalone: true })
      const b = yield* Dependency.make("b", { limit: Limit.fixed(1), standalone: true })
      const deep = yield* start(b.call(b.call(b.call(Effect.succeed("deep")))))
      const across = yield* start(a.call(b.call(b.call(Effect.succeed("across")))))
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual([deep.pollUnsafe(), across.pollUnsafe()], [Exit.succeed("deep"), Exit.succeed("across")])
    }).pipe(Effect.scoped)
  )

  it.effect("A31: a fiber that outlives its agent, or is reached late by a stop, starts no call any more", () =>
    Effect.gen(function* () {
      let made = 0
      let late: Exit.Exit<unknown, unknown> | undefined
      const calling = Effect.exit(Model.call(Effect.sync(() => made++)))
      const child = agent("Child", () =>
        Effect.forkDetach(
          Effect.andThen(
            Effect.sleep("1 second"),
            Effect.tap(calling, (exit) => Effect.sync(() => (late = exit)))
          )
        )
      )
      const closing = agent("Closing", () => Effect.onInterrupt(Effect.never, () => calling))
      const root = agent("Root", () =>
        Effect.andThen(Agent.run(child, 1), Effect.andThen(Agent.spawn(closing, 1), Effect.sleep("2 seconds")))
      )
      yield* run(root)
      assert.strictEqual(late === undefined ? "none" : reasonOf(late)?._tag, "Draining")
      assert.strictEqual(made, 0)
    })
  )

  it.effect("A20: a child's own reserve is kept from its own calls too", () =>
    Effect.gen(function* () {
      const child = agent(
        "Child",
        () => Effect.all([Effect.exit(call(25, 25)), Effect.exit(Agent.wrapUp(call(25, 25)))]),
        {
          reserve: { tokens: 10 }
        }
      )
      const root = agent("Root", () => Agent.run(child, null, { tokens: 30 }))
      const { exit } = yield* run(root, { tokens: 100 })
      const [ordinary, closing] = exit._tag === "Completed" ? exit.output : []
      assert.strictEqual(reasonOf(ordinary)?._tag, "BudgetExceeded")
      assert.isTrue(Exit.isSuccess(closing))
    })
  )
})

describe("limits that lose work", () => {
  it.effect("A37, A38, A42: time that ends leaves what was published, with one terminal event and its reason", () =>
    Effect.gen(function* () {
      const root = agent("Root", (_input, self) =>
        Effect.gen(function* () {
          yield* self.partial("two of five")
          yield* Effect.sleep("1 hour")
        })
      )
      const { exit, events } = yield* run(root, { deadline: "10 seconds" })
      assert.deepStrictEqual(exit, { _tag: "Partial", output: "two of five", reason: "its deadline passed" })
      assert.strictEqual(events.filter((event) => event._tag === "Ended").length, 1)
    })
  )

  it.effect("A39: inherited limits are in the child's envelope and in the error", () =>
    Effect.gen(function* () {
      const child = agent("Child", () => Effect.map(Envelope.current, (envelope) => envelope!.deadline))
      const root = agent("Root", () =>
        Effect.all([Agent.run(child, null), Effect.map(Envelope.current, (envelope) => envelope!.deadline)])
      )
      const { exit } = yield* run(root, { deadline: "50 seconds" })
      const [below, above] = exit._tag === "Completed" ? exit.output : []
      assert.strictEqual(above - below, 5_000)
    })
  )

  it.effect("A42: work that is cut by its deadline gets one wrap-up in the time that was kept for it", () =>
    Effect.gen(function* () {
      const child = agent("Child", () => Effect.never)
      const root = agent(
        "Root",
        () => Agent.orWrapUp(Agent.run(child, null), (why) => Effect.as(call(10, 10), `closed for ${why}`)),
        { reserve: { tokens: 10, time: "5 seconds" } }
      )
      const { exit, report } = yield* run(root, { tokens: 100, deadline: "30 seconds" })
      assert.strictEqual(exit._tag === "Completed" ? exit.output : exit, "closed for deadline")
      assert.isBelow(report.millis, 30_000)
    })
  )

  it.effect("steps that finished are not run again when a child is", () =>
    Effect.gen(function* () {
      let first = 0
      let second = 0
      const child = agent("Child", () =>
        Effect.gen(function* () {
          yield* Agent.step(
            "first",
            Effect.andThen(
              call(10, 10),
              Effect.sync(() => first++)
            )
          )
          yield* Agent.step(
            "second",
            Effect.suspend(() => (++second < 3 ? Effect.fail("flaky") : Effect.void))
          )
        })
      )
      const root = agent("Root", () => Agent.run(child, null))
      const { exit, report } = yield* run(root)
      assert.deepStrictEqual(
        [exit._tag, first, second, report.retries, report.subtree.tokens],
        ["Completed", 1, 3, 2, 10]
      )
    })
  )

  it.effect(
    "A43: a restart is a retry: what the fleet's retry budget does not allow ends as the failure that it is",
    () =>
      Effect.gen(function* () {
        let runs = 0
        const child = agent("Child", () =>
          Effect.andThen(
            Effect.sync(() => runs++),
            Effect.fail("down")
          )
        )
        const root = agent("Root", () => Agent.forEach(child, [1, 2, 3, 4, 5]))
        const { exit, report } = yield* run(root, {}, { retries: { ratio: 0, reserve: 2 } })
        assert.deepStrictEqual([runs, report.retries], [7, 2])
        assert.isTrue(exit._tag === "Completed" && exit.output.ended.Failed === 5)
      })
  )

  it.effect("a failed check is Failed with its reason, never Partial", () =>
    Effect.gen(function* () {
      const root = agent("Root", (_input, self) => Effect.as(self.partial("so far"), "wrong"), {
        verify: () => Effect.succeed(false)
      })
      const { exit } = yield* run(root)
      assert.deepInclude(exit, { _tag: "Failed", reason: "Unverified: the result of Root did not pass its check" })
    })
  )
})
