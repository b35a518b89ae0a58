/** What the cases share: running to an end in virtual time, agents without ceremony, interruption at a chosen step. */
import { assert } from "@effect/vitest"
import { type Duration, Effect, Exit, Fiber, Scheduler, Schema } from "effect"
import { TestClock } from "effect/testing"
import * as Agent from "espalier/Agent"
import { Envelope, of } from "../../src/internal/envelope.ts"
import type * as Ledger from "../../src/internal/ledger.ts"
import { Node } from "../../src/internal/tree/node.ts"

type Options = Omit<
  Agent.Options<typeof Schema.Any, typeof Schema.Any, typeof Schema.Any, unknown, never>,
  "input" | "output" | "run"
>

/** An agent of any input and output. */
export const agent = <A, E, R>(
  name: string,
  run: (input: any, self: Agent.Self<any>) => Effect.Effect<A, E, R>,
  options: Options = {}
) => Agent.make(name, { partial: Schema.Any, ...options, input: Schema.Any, output: Schema.Any, run })

/** Starts it now, and lets it settle as a value. */
export const start = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.forkChild(Effect.exit(effect), { startImmediately: true })

/** Lets other fibers have so many turns. */
export const turns = (count: number): Effect.Effect<void> =>
  Effect.forEach(Array.from({ length: count }), () => Effect.yieldNow, { discard: true })

/** Runs it while so much virtual time passes; it must have ended by then. */
export const within = Effect.fnUntraced(function* <A, E, R>(duration: Duration.Input, effect: Effect.Effect<A, E, R>) {
  const exit = yield* endOf(duration, effect)
  assert(exit !== undefined, "still running")
  return yield* exit
})

/** How it ended while so much virtual time passed; `undefined` when it still runs. */
export const endOf = Effect.fnUntraced(function* <A, E, R>(duration: Duration.Input, effect: Effect.Effect<A, E, R>) {
  const fiber = yield* Effect.forkChild(effect, { startImmediately: true })
  yield* TestClock.adjust(duration)
  for (let turn = 0; turn < 500 && fiber.pollUnsafe() === undefined; turn++) yield* Effect.yieldNow
  return fiber.pollUnsafe()
})

/** The output of what must succeed. */
export const valueOf = <A, E>(exit: Exit.Exit<A, E>): A => {
  assert(Exit.isSuccess(exit), String(exit))
  return exit.value
}

/** Runs it, interrupts it after so many turns of others, and waits for its end. */
export const interruptedAfter = Effect.fnUntraced(function* <A, E, R>(
  ops: number,
  turnsBefore: number,
  effect: Effect.Effect<A, E, R>
) {
  const swept = Effect.provideService(effect, Scheduler.MaxOpsBeforeYield, ops)
  const fiber = yield* Effect.forkChild(swept, { startImmediately: true })
  yield* turns(turnsBefore)
  yield* Fiber.interrupt(fiber)
})

/** Each pair of a yield budget and a step, with what went wrong there. */
export const sweep = Effect.fnUntraced(function* <E, R>(
  last: { readonly ops: number; readonly steps: number },
  each: (ops: number, step: number) => Effect.Effect<string | undefined, E, R>
) {
  const wrong: Array<string> = []
  for (let ops = 3; ops <= last.ops; ops++) {
    for (let step = 0; step <= last.steps; step++) {
      const what = yield* each(ops, step)
      if (what !== undefined) wrong.push(`ops ${ops}, step ${step}: ${what}`)
    }
  }
  return wrong
})

/** The node and the account that the running agent really has. */
export const mine = Effect.withFiber((fiber) => {
  const envelope = of(fiber)
  const node = envelope === undefined ? undefined : Envelope.node(envelope)
  assert(envelope !== undefined && node instanceof Node)
  return Effect.succeed({ node, account: Envelope.account(envelope) as Ledger.Account })
})
