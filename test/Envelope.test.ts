/** The envelope as a capability: every way that agent code could try to get more than it was given. */
import { assert, describe, it } from "@effect/vitest"
import { Cause, type Context, Effect, Exit, Fiber, Schema } from "effect"
import * as Agent from "espalier/Agent"
import * as Budget from "espalier/Budget"
import * as Deadline from "espalier/Deadline"
import * as Dependency from "espalier/Dependency"
import * as Envelope from "espalier/Envelope"
import * as Fleet from "espalier/Fleet"
import * as Limit from "espalier/Limit"
import { isRejected } from "espalier/Rejected"

class Tool extends Dependency.Service<Tool>()("tool", { limit: Limit.fixed(1) }) {}

const tagOf = (exit: Exit.Exit<unknown, unknown>): string => {
  if (Exit.isSuccess(exit)) return "went through"
  const error = Cause.findErrorOption(exit.cause)
  return error._tag === "Some" && isRejected(error.value) ? error.value.reason._tag : "failed"
}

const asRoot = <A, E>(
  run: Effect.Effect<A, E, Tool>,
  options: Fleet.SubmitOptions = { tokens: 10, deadline: "1 minute" }
) => {
  const Root = Agent.make("Root", { input: Schema.Void, output: Schema.Any, run: () => run })
  return Effect.map(Fleet.run(Root, undefined, options), ({ output }) => output as A).pipe(
    Effect.provide([Fleet.layer(), Tool.layer])
  )
}

const spend = (tokens: number) => Effect.exit(Tool.call(Effect.void, { tokens }))

describe("an envelope", () => {
  it.effect("that agent code makes up counts as none, or the agent's own is used in its place", () =>
    asRoot(
      Effect.gen(function* () {
        const mine = (yield* Envelope.current)!
        const wide = { tokens: 1e9, deadline: Deadline.never, priority: 0, mayRetry: true, depth: 0 }
        const fakes: ReadonlyArray<unknown> = [
          { ...mine, ...wide },
          Object.create(Object.getPrototypeOf(mine), { deadline: { value: Deadline.never }, priority: { value: 0 } }),
          Object.create(mine, { priority: { value: 0 } }),
          new Proxy(mine, { get: (target, key) => (key === "priority" ? 0 : Reflect.get(target, key, target)) }),
          undefined
        ]
        for (const fake of fakes) {
          const forged = Effect.provideService(spend(1_000), Envelope.CurrentEnvelope, fake as Envelope.Envelope)
          assert.strictEqual(tagOf(yield* forged), "BudgetExceeded")
          assert.isFalse(Envelope.isEnvelope(fake))
          const inFiber = yield* Effect.flatMap(Effect.forkChild(forged), Fiber.join)
          assert.notStrictEqual(tagOf(inFiber), "went through")
        }
      })
    )
  )

  it.effect("cannot be built from its class, changed in place, or read for its account", () =>
    asRoot(
      Effect.gen(function* () {
        const mine = (yield* Envelope.current)!
        const before = [mine.priority, mine.deadline, mine.depth]
        assert.strictEqual(mine.constructor, Object)
        for (const key of ["priority", "deadline", "depth", "mayRetry"]) {
          assert.throws(() => Object.assign(mine, { [key]: 0 }))
          assert.throws(() => Object.defineProperty(Object.getPrototypeOf(mine), key, { value: 0 }))
        }
        assert.deepStrictEqual([mine.priority, mine.deadline, mine.depth], before)
        assert.deepStrictEqual(Object.keys(mine), [])
        assert.deepStrictEqual(Reflect.ownKeys(mine), [])
      })
    )
  )

  it.effect("of a parent that its child got hold of does not carry the parent's budget into the child", () => {
    const Child = Agent.make("Child", {
      input: Schema.Any,
      output: Schema.String,
      run: ({ context }: { context: Context.Context<Tool> }) =>
        Effect.map(Effect.provideContext(spend(50), context), tagOf)
    })
    return Effect.map(
      asRoot(
        Effect.gen(function* () {
          const context = yield* Effect.context<Tool>()
          return yield* Agent.run(Child, { context }, { tokens: 10 })
        }),
        { tokens: 100 }
      ),
      (seen) => assert.strictEqual(seen, "BudgetExceeded")
    )
  })

  it.effect("is needed: a runtime of one's own has none, and a section never gets a later deadline", () =>
    asRoot(
      Effect.gen(function* () {
        const tool = yield* Tool
        const outside = yield* Effect.promise(() =>
          Effect.runPromise(Effect.exit(tool.call(Effect.void, { tokens: 1e9 })))
        )
        assert.strictEqual(tagOf(outside), "NoEnvelope")
        const mine = (yield* Envelope.current)!
        const later = yield* Envelope.within("10 hours")(Envelope.current)
        assert.strictEqual(later!.deadline, mine.deadline)
        const earlier = yield* Envelope.within("1 second")(Envelope.current)
        assert.isBelow(earlier!.deadline, mine.deadline)
      })
    )
  )

  it.effect("gives no more for negative or senseless amounts, and settles a hold once", () =>
    asRoot(
      Effect.gen(function* () {
        for (const tokens of [-5, Number.NaN, Infinity, 0.5, 1e99]) {
          const exit = yield* Effect.exit(Effect.suspend(() => Tool.call(Effect.void, { tokens })))
          assert.isTrue(Exit.isFailure(exit))
          const charge = yield* Effect.exit(Effect.suspend(() => Budget.charge(Effect.void, { hold: { tokens } })))
          assert.isTrue(Exit.isFailure(charge))
        }
        yield* Effect.exit(Tool.call(Effect.void, { tokens: 4, usage: () => ({ tokens: -100 }) }))
        assert.isAtMost((yield* Budget.remaining).tokens!, 10)
      })
    )
  )
})
