/** What the machinery learns from an exit, and what it does with a reader that is wrong. */
import { assert, describe, it } from "@effect/vitest"
import { Cause, Duration, Effect, Exit, Schema } from "effect"
import { TestClock } from "effect/testing"
import * as Agent from "espalier/Agent"
import * as Dependency from "espalier/Dependency"
import * as Fault from "espalier/Fault"
import * as Fleet from "espalier/Fleet"
import * as GaveUp from "espalier/GaveUp"
import * as Limit from "espalier/Limit"
import * as Outcome from "espalier/Outcome"
import * as Rejected from "espalier/Rejected"

describe("fromExit", () => {
  const refusal = Rejected.make({ _tag: "Draining" })
  const cases: ReadonlyArray<readonly [string, Exit.Exit<unknown, unknown>, Outcome.Outcome]> = [
    ["a success is Success", Exit.succeed(1), Outcome.success],
    ["an interruption is Ignored", Exit.interrupt(1), Outcome.ignored],
    ["a refusal of our own is Ignored", Exit.fail(refusal), Outcome.ignored],
    ["an error that says nothing is Failure", Exit.fail("down"), Outcome.failure],
    ["null is Failure", Exit.fail(null), Outcome.failure],
    ["a defect is Failure", Exit.die(new TypeError("no such function")), Outcome.failure],
    [
      "our own time-out further in is Failure",
      Exit.fail(GaveUp.make({ _tag: "Expired", agent: "a" })),
      Outcome.failure
    ],
    ["an error that knows is asked", Exit.fail({ outcome: Outcome.ignored }), Outcome.ignored],
    ["an outcome that is none is Failure", Exit.fail({ outcome: { _tag: "Good" } }), Outcome.failure],
    ["an outcome that is no object is Failure", Exit.fail({ outcome: "Ignored" }), Outcome.failure],
    ["a throttle keeps its wait", Exit.fail({ outcome: Outcome.throttled(2_000) }), Outcome.throttled(2_000)],
    [
      "a failure beside an interruption is Failure",
      Exit.failCause(Cause.combine(Cause.interrupt(1), Cause.fail("down"))),
      Outcome.failure
    ]
  ]
  for (const [name, exit, outcome] of cases) {
    it(name, () => assert.deepStrictEqual(Outcome.fromExit(exit), outcome))
  }

  it("each fault means what it is", () => {
    const common = { dependency: "api", status: 0 }
    assert.strictEqual(new Fault.ToolFlaky(common).outcome._tag, "Failure")
    assert.strictEqual(new Fault.QuotaExhausted(common).outcome._tag, "Ignored")
    assert.strictEqual(new Fault.BadRequest(common).outcome._tag, "Ignored")
    assert.strictEqual(new Fault.Unauthorized(common).outcome._tag, "Ignored")
    const throttled = new Fault.ModelOverloaded({ ...common, retryAfterMillis: 1_500 }).outcome
    assert(throttled._tag === "Throttled")
    assert.strictEqual(Duration.toMillis(Duration.fromInputUnsafe(throttled.retryAfter!)), 1_500)
  })
})

describe("a reader that throws", () => {
  const boom = (): never => {
    throw new TypeError("cannot read properties of undefined")
  }
  const readers: ReadonlyArray<readonly [string, Dependency.CallOptions<string, string>]> = [
    ["classify", { classify: boom }],
    ["usage", { tokens: 10, usage: boom }],
    ["usage with a number that is none", { tokens: 10, usage: () => ({ tokens: Number.NaN }) }],
    ["usage with a negative number", { tokens: 10, usage: () => ({ tokens: -5 }) }],
    ["classify with a wait that is none", { classify: () => Outcome.throttled("soon" as never) }]
  ]
  for (const [name, call] of readers) {
    it.effect(`${name}: the call ends all the same, with its slot and its hold given back`, () =>
      Effect.gen(function* () {
        class Api extends Dependency.Service<Api>()("api", { limit: Limit.fixed(1), breaker: false }) {}
        const Root = Agent.make("Root", {
          input: Schema.Void,
          output: Schema.Unknown,
          run: () =>
            Effect.gen(function* () {
              yield* Effect.exit(Api.call(Effect.succeed("answer"), call))
              const { inFlight } = yield* Api.snapshot
              const next = yield* Api.call(Effect.succeed("next"))
              return [inFlight, next]
            })
        })
        const fiber = yield* Effect.forkChild(
          Fleet.run(Root, undefined, { tokens: 100, deadline: "1 hour" }).pipe(
            Effect.provide([Fleet.layer(), Api.layer]),
            Effect.exit
          ),
          { startImmediately: true }
        )
        yield* TestClock.adjust("10 minutes")
        const exit = fiber.pollUnsafe()
        assert(exit !== undefined && Exit.isSuccess(exit) && Exit.isSuccess(exit.value), "still running")
        assert.deepStrictEqual(exit.value.value.output, [0, "next"])
        // The truth never came: the whole hold is charged, and no more.
        assert.include([0, 10], exit.value.value.report.subtree.tokens)
      })
    )
  }
})
