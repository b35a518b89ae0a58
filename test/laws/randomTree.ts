/**
 * Trees of agents made from a seed, and what must hold of them at every step and in the end.
 *
 * The plan of a tree is data: who calls what with which hold and which truth, who delegates how, who fails, dies, hangs,
 * is cut short. The same plan runs under a virtual clock with any number of places, budget and deadline. Checks run from
 * inside (every agent and every call looks at the books on its path and at the clock), from the events, and at the end.
 */
import { assert } from "@effect/vitest"
import { Clock, Data, Effect, Fiber, Random, Schema, Stream } from "effect"
import { TestClock } from "effect/testing"
import * as Agent from "espalier/Agent"
import * as Dependency from "espalier/Dependency"
import * as Envelope from "espalier/Envelope"
import type { Event } from "espalier/Event"
import * as Fleet from "espalier/Fleet"
import * as Limit from "espalier/Limit"
import * as Rate from "espalier/Rate"
import type { Report } from "espalier/Report"
import { Envelope as Genuine, of, ownedCount } from "../../src/internal/envelope.ts"
import * as Ledger from "../../src/internal/ledger.ts"

export interface Step {
  readonly hold: number
  /** What the downstream says it used; `undefined` is never told. */
  readonly truth: number | undefined
  readonly millis: number
  readonly fails: boolean
  readonly deaf: boolean
}

export interface Plan {
  readonly name: string
  readonly steps: ReadonlyArray<Step>
  readonly kids: ReadonlyArray<Plan>
  readonly how: "forEach" | "run" | "spawn" | "race"
  readonly ends: "well" | "fails" | "dies" | "hangs" | "publishes and hangs"
  readonly grant: number | undefined
}

export interface Setting {
  readonly seed: number
  readonly places: number
  readonly tokens: number | undefined
  readonly deadlineMillis: number | undefined
  readonly overdraws: boolean
  readonly plan: Plan
}

/** Numbers from 0 to below 1, the same for the same seed. */
export const draws = (seed: number): (() => number) => {
  let state = seed | 0
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}

export const settingOf = (seed: number): Setting => {
  const draw = draws(seed * 7_919 + 1)
  const one = <A>(...choices: ReadonlyArray<A>): A => choices[Math.floor(draw() * choices.length)]!
  const overdraws = draw() < 0.25
  let count = 0
  const plan = (depth: number): Plan => {
    const name = `p${count++}`
    const width = depth >= 4 || count > 40 ? 0 : Math.floor(draw() * 5)
    return {
      name,
      steps: Array.from({ length: Math.floor(draw() * 4) }, () => {
        const hold = Math.floor(draw() * 40)
        return {
          hold,
          truth: one(hold, Math.floor(hold / 2), 0, undefined, overdraws ? hold + 5 : hold),
          millis: Math.floor(draw() * 400),
          fails: draw() < 0.1,
          deaf: draw() < 0.05
        }
      }),
      kids: Array.from({ length: width }, () => plan(depth + 1)),
      how: one("forEach", "forEach", "run", "spawn", "race"),
      ends: one("well", "well", "well", "well", "fails", "dies", "hangs", "publishes and hangs"),
      grant: draw() < 0.4 ? Math.floor(draw() * 300) : undefined
    }
  }
  return {
    seed,
    places: one(1, 1, 2, 5, 64),
    tokens: one(undefined, 0, 50, 500, 5_000),
    deadlineMillis: one(undefined, 200, 2_000, 20_000),
    overdraws,
    plan: plan(0)
  }
}

class Boom extends Data.TaggedError("Boom") {}

const limit = 3
const perSecond = 50
const burst = 5

export class Downstream extends Dependency.Service<Downstream>()("downstream", {
  limit: Limit.fixed(limit),
  rates: [Rate.perSecond(perSecond, { burst, headroom: 1 })],
  breaker: { rate: 0.9, minimum: 50 },
  queue: 20,
  timeout: "300 millis",
  grace: "1 second"
}) {}

/** What the downstream saw; the checks of laws 4 and 5 read it. */
interface Seen {
  inFlight: number
  peak: number
  readonly starts: Array<number>
  /** What was found wrong inside agents and calls, where a thrown assertion would only fail a node. */
  readonly wrong: Array<string>
}

const look = (seen: Seen, overdraws: boolean): Effect.Effect<void> =>
  Effect.withFiber((fiber) => {
    const envelope = of(fiber)
    if (envelope === undefined) return Effect.sync(() => void seen.wrong.push("no envelope"))
    for (let at: Ledger.Account | undefined = Genuine.account(envelope) as Ledger.Account; at; at = at.parent) {
      if (!Ledger.balances(at)) seen.wrong.push(`books of ${at.id} do not balance`)
      if (!overdraws && at.tokens.spent > at.tokens.granted) seen.wrong.push(`${at.id} spent more than its grant`)
    }
    return Effect.void
  })

const now = Clock.clockWith((clock) => Effect.succeed(Number(clock.monotonicTimeNanosUnsafe()) / 1e6))

/** One call: its work notes when it began and ended, and that it did not begin too late. */
const callOf = (step: Step, seen: Seen, overdraws: boolean) => {
  const work = Effect.gen(function* () {
    const started = yield* now
    const envelope = yield* Envelope.current
    if (!(started < envelope!.deadline)) seen.wrong.push(`law 4: a call of ${envelope!.id} began after its deadline`)
    if (Genuine.node(envelope as Genuine).isStopping)
      seen.wrong.push(`law 4: a call of ${envelope!.id} began while it was stopping`)
    seen.starts.push(started)
    yield* look(seen, overdraws)
    yield* step.deaf ? Effect.uninterruptible(Effect.sleep(step.millis + 1_500)) : Effect.sleep(step.millis)
    if (step.fails) return yield* new Boom()
    return step.truth
  })
  const counted = Effect.acquireUseRelease(
    Effect.sync(() => {
      seen.peak = Math.max(seen.peak, ++seen.inFlight)
    }),
    () => work,
    () => Effect.sync(() => seen.inFlight--)
  )
  return Downstream.call(counted, {
    tokens: step.hold,
    usage: (exit) => (exit._tag === "Success" && exit.value !== undefined ? { tokens: exit.value } : undefined)
  })
}

interface Terms {
  readonly parent: Envelope.Envelope | undefined
  readonly plan: Plan
}

const narrows = (parent: Envelope.Envelope, child: Envelope.Envelope): boolean =>
  child.deadline <= parent.deadline &&
  child.depth === parent.depth + 1 &&
  child.priority === parent.priority &&
  child.ancestry.parent === parent.ancestry &&
  !child.mayRetry

const agentOf = (seen: Seen, overdraws: boolean) => {
  type Node = Agent.Agent<Terms, string, string, unknown, Downstream>
  const node: Node = Agent.make("Node", {
    input: Schema.Any as Schema.Codec<Terms>,
    output: Schema.String,
    partial: Schema.String,
    identity: ({ plan }: Terms) => plan.name,
    label: ({ plan }: Terms) => plan.name,
    run: ({ parent, plan }: Terms, self): Effect.Effect<string, unknown, Downstream> =>
      Effect.gen(function* () {
        const mine = (yield* Envelope.current)!
        if (parent !== undefined && !narrows(parent, mine))
          seen.wrong.push(`law 3: ${mine.id} is wider than its parent`)
        yield* look(seen, overdraws)
        for (const step of plan.steps) {
          yield* Effect.ignore(callOf(step, seen, overdraws))
          yield* look(seen, overdraws)
        }
        const terms = plan.kids.map((kid) => ({ parent: mine, plan: kid }))
        yield* delegate(plan, terms)
        yield* look(seen, overdraws)
        if (plan.ends === "fails") return yield* new Boom()
        if (plan.ends === "dies") return yield* Effect.die("a defect")
        if (plan.ends === "publishes and hangs") yield* self.partial(`${plan.name} so far`)
        if (plan.ends.endsWith("hangs")) yield* Effect.sleep("30 seconds")
        return plan.name
      })
  })
  const delegate = (plan: Plan, terms: ReadonlyArray<Terms>): Effect.Effect<void, never, Downstream> => {
    const options = plan.grant === undefined ? {} : { tokens: plan.grant }
    switch (plan.how) {
      case "forEach":
        return Effect.ignore(Agent.forEach(node, terms, options))
      case "run":
        return Effect.forEach(terms, (each) => Effect.ignoreCause(Agent.run(node, each, options)), { discard: true })
      case "spawn":
        // Spawned and not waited for: the end of their parent is their end.
        return Effect.forEach(terms, (each) => Effect.ignore(Agent.spawn(node, each, options)), { discard: true })
      case "race":
        return terms.length === 0 ? Effect.void : Effect.ignoreCause(Agent.race([node, node], terms[0]!, options))
    }
  }
  return node
}

export interface History {
  readonly events: ReadonlyArray<Event>
  readonly report: Report
}

/** Runs a setting to its end, interrupting the task after `stopAfterMillis` if given, and checks all that must hold. */
export const run = (setting: Setting, stopAfterMillis?: number): Effect.Effect<History> =>
  Effect.gen(function* () {
    const owned = ownedCount()
    const seen: Seen = { inFlight: 0, peak: 0, starts: [], wrong: [] }
    const events: Array<Event> = []
    const root = agentOf(seen, setting.overdraws)
    const history = yield* Effect.gen(function* () {
      yield* Effect.forkChild(
        Stream.runForEach(Fleet.events, (event) => Effect.sync(() => events.push(event))),
        { startImmediately: true }
      )
      // The reader listens only once its fiber has got that far, whatever its share of turns.
      for (let turn = 0; turn < 300; turn++) yield* Effect.yieldNow
      const handle = yield* Fleet.submit(
        root,
        { parent: undefined, plan: setting.plan },
        {
          ...(setting.tokens === undefined ? {} : { tokens: setting.tokens }),
          ...(setting.deadlineMillis === undefined ? {} : { deadline: setting.deadlineMillis })
        }
      )
      if (stopAfterMillis !== undefined) {
        yield* TestClock.adjust(stopAfterMillis)
        const stopping = yield* Effect.forkChild(handle.stop, { startImmediately: true })
        yield* TestClock.adjust("10 seconds")
        yield* Fiber.join(stopping)
      }
      // A tree in which every node hangs for its 30 seconds, one after the other, ends within this.
      yield* TestClock.adjust("6 hours")
      const report = yield* handle.report
      const snapshot = yield* Fleet.snapshot
      const gate = yield* Downstream.snapshot
      assert.strictEqual(snapshot.live, 0, "nodes live")
      assert.deepStrictEqual([snapshot.places.inFlight, ...snapshot.places.waiting], [0, 0, 0, 0, 0], "places")
      assert.deepStrictEqual([gate.inFlight, gate.zombies, ...gate.waiting], [0, 0, 0, 0, 0, 0], "slots")
      // Events are read by a fiber of their own; the root's end is the last of them.
      const isLast = () => events.some((event) => event._tag === "Ended" && event.node === `${report.task}/0`)
      for (let turn = 0; turn < 1_000 && !isLast(); turn++) yield* Effect.yieldNow
      return { events: [...events], report }
    }).pipe(
      Effect.provide([Fleet.layer({ places: setting.places }), Downstream.layer]),
      Random.withSeed(setting.seed),
      Effect.orDie
    )
    assert.strictEqual(ownedCount(), owned, "envelopes held")
    assert.deepStrictEqual(seen.wrong, [])
    assert.strictEqual(seen.inFlight, 0)
    check(setting, seen, history)
    return history
  })

const check = (setting: Setting, seen: Seen, { events, report }: History): void => {
  assert.isAtMost(seen.peak, limit, "law 5: in flight")
  seen.starts.forEach((start, index) => {
    const within = seen.starts.slice(index).filter((other) => other < start + 1_000).length
    assert.isAtMost(within, perSecond + burst, "law 5: starts in a second")
  })
  const spawned = new Set<string>()
  const ended = new Map<string, string>()
  for (const event of events) {
    if (event._tag === "Spawned") {
      assert.isFalse(spawned.has(event.node) || ended.has(event.node), `${event.node} spawned twice or late`)
      spawned.add(event.node)
    } else if (event._tag === "Ended") {
      assert.isFalse(ended.has(event.node), `law 8: ${event.node} ended twice`)
      assert.isTrue(spawned.has(event.node) || event.state === "Rejected", `${event.node} ended and was never spawned`)
      ended.set(event.node, event.state)
    }
  }
  for (const node of spawned) assert.isTrue(ended.has(node), `law 8: ${node} has no end`)
  assert.strictEqual(ended.size, report.nodes)
  assert.strictEqual(
    Object.values(report.ended).reduce((sum, count) => sum + count, 0),
    report.nodes
  )
  const own = report.nodeReports.reduce((sum, node) => sum + node.own.tokens, 0)
  assert.strictEqual(own, report.subtree.tokens, "law 1: the nodes' own spending adds up to the tree's")
  if (setting.tokens !== undefined && !setting.overdraws)
    assert.isAtMost(report.subtree.tokens, setting.tokens, "law 2")
}
