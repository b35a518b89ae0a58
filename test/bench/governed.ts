/** The burst through Espalier: an agent of a fleet with a budget and a deadline makes all calls at once. */
import { Effect, Layer, ManagedRuntime, Schema } from "effect"
import * as Agent from "espalier/Agent"
import * as Dependency from "espalier/Dependency"
import * as Fleet from "espalier/Fleet"
import * as Limit from "espalier/Limit"
import * as Rate from "espalier/Rate"
import * as Retry from "espalier/Retry"
import type { Burst } from "./peers.ts"
import { concurrency, plenty, retries, timeoutMillis } from "./setting.ts"

const maxCalls = 1_000_000
const hold = 20
const used = 12

class Crm extends Dependency.Service<Crm>()("crm", {
  limit: Limit.fixed(concurrency),
  rates: [Rate.perSecond(plenty, { burst: plenty }), Rate.perSecond(plenty, { unit: "tokens", burst: plenty })],
  queue: maxCalls,
  breaker: { consecutive: 5 },
  timeout: timeoutMillis
}) {}

const request = { tokens: hold, usage: () => ({ tokens: used }) }
const policy = { times: retries }

const Caller = Agent.make("Caller", {
  input: Schema.Int,
  output: Schema.Int,
  run: (size) =>
    Effect.suspend(() => {
      let done = 0
      // Made anew for each, as a call with a prompt of its own is.
      const call = () => Effect.map(Retry.owned(Crm.call(Effect.yieldNow, request), policy), () => void done++)
      return Effect.map(
        Effect.forEach(Array.from({ length: size }), call, { concurrency: "unbounded", discard: true }),
        () => done
      )
    })
})

/** All of it: budget, breaker, line, slots, two rates, time-out, deadline, retries. */
export const espalier = (): Burst => {
  const runtime = ManagedRuntime.make(Layer.merge(Fleet.layer(), Crm.layer))
  return async (size) => {
    const { output, report } = await runtime.runPromise(
      Fleet.run(Caller, size, { tokens: size * hold, deadline: "1 hour", priority: 1 })
    )
    if (report.subtree.tokens !== size * used) throw new Error(`${report.subtree.tokens} tokens were charged`)
    return output
  }
}
