import { describe, expect, it } from "vitest"
import * as fc from "fast-check"
import * as FairQueue from "../../src/internal/fairQueue.ts"

class Waiter implements FairQueue.Item {
  ticket = 0
  readonly name: string
  readonly tier: FairQueue.Tier
  readonly cost: number
  readonly order: number
  readonly enqueuedMillis: number
  constructor(tier: number, fields: { cost?: number; order?: number; at?: number; name?: string } = {}) {
    this.tier = tier as FairQueue.Tier
    this.cost = fields.cost ?? 1
    this.order = fields.order ?? 0
    this.enqueuedMillis = fields.at ?? 0
    this.name = fields.name ?? ""
  }
}

const make = (options?: FairQueue.Options) => FairQueue.make<Waiter>(options)

const lineOf = (waiters: ReadonlyArray<Waiter>, options?: FairQueue.Options) => {
  const queue = make(options)
  for (const waiter of waiters) FairQueue.offer(queue, waiter)
  return queue
}

const drain = (queue: FairQueue.FairQueue<Waiter>, nowMillis = 0): Array<Waiter> => {
  const taken: Array<Waiter> = []
  for (let next = FairQueue.take(queue, nowMillis); next !== undefined; next = FairQueue.take(queue, nowMillis)) {
    taken.push(next)
  }
  return taken
}

const weights = [8, 4, 2, 1]

describe("fairQueue", () => {
  describe("order inside a tier", () => {
    it("serves the lowest order first and equals by arrival", () => {
      const waiters = [
        new Waiter(2, { order: 5, name: "c" }),
        new Waiter(2, { order: 1, name: "a" }),
        new Waiter(2, { order: 5, name: "d" }),
        new Waiter(2, { order: 1, name: "b" }),
        new Waiter(2, { order: 9, name: "e" })
      ]
      expect(drain(lineOf(waiters)).map((waiter) => waiter.name)).toEqual(["a", "b", "c", "d", "e"])
    })

    it("agrees with a stable sort whatever the orders", () => {
      fc.assert(
        fc.property(fc.array(fc.integer({ min: -5, max: 5 }), { maxLength: 200, size: "max" }), (orders) => {
          const waiters = orders.map((order) => new Waiter(1, { order }))
          const sorted = waiters.toSorted((a, b) => a.order - b.order)
          expect(drain(lineOf(waiters))).toEqual(sorted)
        })
      )
    })

    it("needs no heap for those that arrive in order", () => {
      const queue = lineOf(
        [...Array(100).keys()].map((index) => new Waiter(index % 4, { order: index >> 4, at: index >> 3 }))
      )
      for (const line of [...queue.tiers, queue.ages]) expect(line.heap).toEqual([])
    })

    it("keeps arrival among equals when an item that was cancelled is offered again", () => {
      const first = new Waiter(0, { name: "first" })
      const second = new Waiter(0, { name: "second" })
      const queue = lineOf([first, second])
      FairQueue.cancel(queue, first)
      FairQueue.offer(queue, first)
      expect(drain(queue)).toEqual([second, first])
    })
  })

  describe("shares", () => {
    // The shares are exact in the limit; what is bounded is the distance at every single step.
    const distances = (costs: ReadonlyArray<number>, options: FairQueue.Options = {}) => {
      const shares = options.weights ?? weights
      const sum = shares.reduce((a, b) => a + b)
      const queue = make({ ageBoundMillis: Infinity, ...options })
      let dealt = 0
      const offer = (tier: number) => FairQueue.offer(queue, new Waiter(tier, { cost: costs[dealt++ % costs.length]! }))
      for (let round = 0; round < 3; round++) for (let tier = 0; tier < 4; tier++) offer(tier)
      const served = [0, 0, 0, 0]
      let total = 0
      let worst = 0
      for (let step = 0; step < 400; step++) {
        const { cost, tier } = FairQueue.take(queue, 0)!
        served[tier]! += cost
        total += cost
        offer(tier)
        for (let other = 0; other < 4; other++) {
          worst = Math.max(worst, Math.abs(served[other]! - (total * shares[other]!) / sum))
        }
      }
      return { served, total, worst }
    }

    it("are 8 : 4 : 2 : 1 within one largest cost at every step, whatever the costs", () => {
      fc.assert(
        fc.property(
          fc.array(fc.integer({ min: 1, max: 1000 }), { minLength: 1, maxLength: 40, size: "max" }),
          (costs) => {
            expect(distances(costs).worst).toBeLessThanOrEqual(Math.max(...costs))
          }
        ),
        { numRuns: 300 }
      )
    })

    it("follow the configured weights", () => {
      const { served, worst } = distances([1], { weights: [1, 1, 1, 1] })
      expect(worst).toBeLessThanOrEqual(1)
      expect(served).toEqual([100, 100, 100, 100])
    })

    it("are counted in cost, not in turns", () => {
      const queue = make({ ageBoundMillis: Infinity, weights: [1, 1, 1, 1] })
      for (let index = 0; index < 400; index++) {
        FairQueue.offer(queue, new Waiter(0, { cost: 10 }))
        FairQueue.offer(queue, new Waiter(3, { cost: 1 }))
      }
      const turns = [0, 0, 0, 0]
      for (let step = 0; step < 110; step++) turns[FairQueue.take(queue, 0)!.tier]!++
      expect(turns[3]! / turns[0]!).toBeCloseTo(10, 0)
    })

    it("go to the tiers that wait when others do not", () => {
      const queue = lineOf([...Array(50).keys()].flatMap(() => [new Waiter(1), new Waiter(3)]))
      const turns = [0, 0, 0, 0]
      for (let step = 0; step < 50; step++) turns[FairQueue.take(queue, 0)!.tier]!++
      expect(turns).toEqual([0, 40, 0, 10])
    })

    it("are not moved by looking", () => {
      const history = (looks: number) => {
        const queue = make()
        const tiers: Array<number> = []
        for (let index = 0; index < 60; index++)
          FairQueue.offer(queue, new Waiter(index % 4, { cost: 1 + (index % 5) }))
        while (FairQueue.size(queue) > 0) {
          for (let look = 0; look < looks; look++) FairQueue.peek(queue, 0)
          tiers.push(FairQueue.take(queue, 0)!.tier)
        }
        return tiers
      }
      expect(history(7)).toEqual(history(0))
    })

    it("are not improved by leaving and coming back after each turn", () => {
      const queue = make({ ageBoundMillis: Infinity })
      for (let index = 0; index < 300; index++) FairQueue.offer(queue, new Waiter(0))
      FairQueue.offer(queue, new Waiter(3))
      const turns = [0, 0, 0, 0]
      for (let step = 0; step < 180; step++) {
        const { tier } = FairQueue.take(queue, 0)!
        turns[tier]!++
        if (tier === 3) FairQueue.offer(queue, new Waiter(3))
      }
      expect(turns).toEqual([160, 0, 0, 20])
    })

    it("do not let a tier save up turns while it does not wait", () => {
      const queue = make({ ageBoundMillis: Infinity })
      for (let index = 0; index < 300; index++) FairQueue.offer(queue, new Waiter(0))
      for (let step = 0; step < 200; step++) FairQueue.take(queue, 0)
      for (let index = 0; index < 100; index++) FairQueue.offer(queue, new Waiter(3))
      const tiers = [...Array(9).keys()].map(() => FairQueue.take(queue, 0)!.tier)
      expect(tiers.filter((tier) => tier === 3)).toHaveLength(1)
    })

    it("hold for items that cost nothing, which are charged the minimum", () => {
      const turnsOf = (minimumCost: number) => {
        const queue = make({ ageBoundMillis: Infinity, minimumCost })
        for (let index = 0; index < 200; index++) FairQueue.offer(queue, new Waiter(3, { cost: 0 }))
        for (let index = 0; index < 200; index++) FairQueue.offer(queue, new Waiter(0, { cost: 4 }))
        const tiers = [...Array(90).keys()].map(() => FairQueue.take(queue, 0)!.tier)
        return tiers.filter((tier) => tier === 3).length
      }
      expect(turnsOf(1)).toBe(30)
      expect(turnsOf(2)).toBe(18)
    })

    it("survive a line that never empties and costs of any size", () => {
      const huge = Number.MAX_SAFE_INTEGER
      expect(distances([huge]).worst / huge).toBeLessThanOrEqual(1)
      const queue = make({ ageBoundMillis: Infinity })
      for (let tier = 0; tier < 4; tier++) FairQueue.offer(queue, new Waiter(tier, { cost: 1e12 }))
      for (let step = 0; step < 1000; step++) {
        FairQueue.offer(queue, new Waiter(FairQueue.take(queue, 0)!.tier, { cost: 1e12 }))
      }
      expect(Math.max(...queue.served)).toBeLessThan(2 ** 42)
    })

    it("never lack a tier that may go, whatever the weights and the fractions of the costs", () => {
      const weight = fc.double({ min: 0.1, max: 20, noNaN: true })
      const costs = fc.array(fc.double({ min: 1, max: 50, noNaN: true }), { minLength: 1, maxLength: 20, size: "max" })
      fc.assert(
        fc.property(fc.tuple(weight, weight, weight, weight), costs, (shares, list) => {
          expect(distances(list, { weights: shares }).worst).toBeLessThanOrEqual(Math.max(...list) * (1 + 1e-6))
        })
      )
      // 49 × (1 / 49) comes out below 1, so the mean of one tier alone is below that very tier.
      const alone = make({ weights: [49, 1, 1, 1] })
      for (let index = 0; index < 100; index++) FairQueue.offer(alone, new Waiter(0))
      expect(drain(alone)).toHaveLength(100)
    })

    it("start over when the line has been empty: nothing is owed, and no largest cost is remembered", () => {
      const queue = make({ ageBoundMillis: Infinity })
      for (let index = 0; index < 50; index++) FairQueue.offer(queue, new Waiter(3, { cost: 1000 }))
      expect(drain(queue)).toHaveLength(50)
      for (let index = 0; index < 30; index++) {
        FairQueue.offer(queue, new Waiter(0))
        FairQueue.offer(queue, new Waiter(3))
      }
      expect(queue.largestCost).toBe(1)
      const tiers = [...Array(18).keys()].map(() => FairQueue.take(queue, 0)!.tier)
      expect(tiers.filter((tier) => tier === 3)).toHaveLength(2)
    })

    it("give way to the best tier always when strict", () => {
      const queue = make({ strict: true })
      for (let index = 0; index < 20; index++) FairQueue.offer(queue, new Waiter(3 - (index % 4)))
      expect(drain(queue).map((waiter) => waiter.tier)).toEqual([0, 1, 2, 3].flatMap((tier) => Array(5).fill(tier)))
    })
  })

  describe("better tiers", () => {
    it("F26: one tier-0 item is next although a hundred of tier 3 wait, however much dearer it is", () => {
      for (const cost of [1, 10, 100_000]) {
        const queue = make()
        for (let index = 0; index < 100; index++) FairQueue.offer(queue, new Waiter(3))
        for (let step = 0; step < 10; step++) FairQueue.take(queue, 0)
        const urgent = new Waiter(0, { cost })
        FairQueue.offer(queue, urgent)
        expect(FairQueue.take(queue, 0)).toBe(urgent)
      }
    })
  })

  describe("age bound", () => {
    it("F25: a tier-3 item starts within the bound although tier 0 arrives faster than it is served", () => {
      for (const strict of [true, false]) {
        const queue = make({ strict, ageBoundMillis: 30_000 })
        const patient = new Waiter(3)
        FairQueue.offer(queue, patient)
        let startedMillis = Infinity
        for (let now = 0; now < 600_000 && startedMillis === Infinity; now += 100) {
          FairQueue.offer(queue, new Waiter(0, { at: now }))
          FairQueue.offer(queue, new Waiter(0, { at: now }))
          if (FairQueue.take(queue, now) === patient) startedMillis = now
        }
        expect(startedMillis).toBeLessThanOrEqual(30_000)
        if (strict) expect(startedMillis).toBe(30_000)
      }
    })

    it("defaults to a minute", () => {
      const queue = lineOf([new Waiter(3, { name: "old" }), new Waiter(0, { at: 1, name: "new" })], { strict: true })
      expect(FairQueue.peek(queue, 59_999)!.name).toBe("new")
      expect(FairQueue.peek(queue, 60_000)!.name).toBe("old")
    })

    it("serves the oldest of those past it, whatever their tier, order and arrival", () => {
      const waiters = [
        new Waiter(0, { at: 30, order: -1 }),
        new Waiter(3, { at: 10, order: 7 }),
        new Waiter(2, { at: 20 }),
        new Waiter(3, { at: 500, order: -5 }),
        new Waiter(1, { at: 5 })
      ]
      const queue = lineOf(waiters, { ageBoundMillis: 100 })
      expect([1, 2, 3, 4].map(() => FairQueue.take(queue, 130)!.enqueuedMillis)).toEqual([5, 10, 20, 30])
      expect(FairQueue.oldestEnqueuedMillis(queue)).toBe(500)
    })

    it("charges what it lets through to the share of its tier", () => {
      const queue = make({ ageBoundMillis: 1000 })
      for (let index = 0; index < 10; index++) FairQueue.offer(queue, new Waiter(3, { at: 0 }))
      for (let index = 0; index < 200; index++) FairQueue.offer(queue, new Waiter(0, { at: 1000 }))
      for (let index = 0; index < 5; index++) expect(FairQueue.take(queue, 1000)!.tier).toBe(3)
      const tiers = [...Array(36).keys()].map(() => FairQueue.take(queue, 999)!.tier)
      expect(tiers.every((tier) => tier === 0)).toBe(true)
    })

    it("is switched off by Infinity", () => {
      const queue = lineOf([new Waiter(3), new Waiter(0, { at: 1 })], { strict: true, ageBoundMillis: Infinity })
      expect(FairQueue.peek(queue, 1e12)!.tier).toBe(0)
    })
  })

  describe("cancelling", () => {
    it("F18: the line is empty right after all waiters gave up, and a new one is next at once", () => {
      const waiters = [...Array(8).keys()].map((index) => new Waiter(index % 4))
      const queue = lineOf(waiters)
      for (const waiter of waiters) FairQueue.cancel(queue, waiter)
      expect(FairQueue.size(queue)).toBe(0)
      expect(FairQueue.peek(queue, 0)).toBeUndefined()
      const newcomer = new Waiter(3)
      FairQueue.offer(queue, newcomer)
      expect(FairQueue.take(queue, 0)).toBe(newcomer)
    })

    it("F19: a cancelled head does not stop the line", () => {
      const [a, b] = [new Waiter(0), new Waiter(0)]
      const queue = lineOf([a, b])
      expect(FairQueue.peek(queue, 0)).toBe(a)
      expect(FairQueue.cancel(queue, a)).toBe(true)
      expect(FairQueue.peek(queue, 0)).toBe(b)
    })

    it("is harmless when repeated, after being served, and before being offered", () => {
      const [a, b, never] = [new Waiter(0), new Waiter(0), new Waiter(0)]
      const queue = lineOf([a, b])
      expect(FairQueue.take(queue, 0)).toBe(a)
      expect(FairQueue.cancel(queue, a)).toBe(false)
      expect(FairQueue.cancel(queue, b)).toBe(true)
      expect(FairQueue.cancel(queue, b)).toBe(false)
      expect(FairQueue.cancel(queue, never)).toBe(false)
      expect(FairQueue.size(queue)).toBe(0)
    })

    it("moves no share", () => {
      const queue = make({ ageBoundMillis: Infinity })
      const cancelled = [...Array(50).keys()].map(() => new Waiter(3, { cost: 100 }))
      for (const waiter of cancelled) FairQueue.offer(queue, waiter)
      for (let index = 0; index < 30; index++) FairQueue.offer(queue, new Waiter(index % 2 === 0 ? 0 : 3))
      for (const waiter of cancelled) FairQueue.cancel(queue, waiter)
      const tiers = [...Array(9).keys()].map(() => FairQueue.take(queue, 0)!.tier)
      expect(tiers.filter((tier) => tier === 3)).toHaveLength(1)
    })

    it("releases what it forgets: entries kept never exceed twice those that wait, plus a constant", () => {
      const held = (queue: FairQueue.FairQueue<Waiter>) =>
        [...queue.tiers, queue.ages].map((line) => line.run.length + line.heap.length)
      fc.assert(
        fc.property(
          fc.array(fc.integer({ min: 0, max: 9 }), { minLength: 1, maxLength: 30, size: "max" }),
          (orders) => {
            const queue = make()
            const waiters = [...Array(2000).keys()].map(
              (index) => new Waiter(index % 4, { order: orders[index % orders.length]!, at: orders[index % 7] ?? 0 })
            )
            for (const waiter of waiters) FairQueue.offer(queue, waiter)
            for (const waiter of waiters) {
              FairQueue.cancel(queue, waiter)
              const lines = held(queue)
              for (let tier = 0; tier < 4; tier++) {
                expect(lines[tier]).toBeLessThanOrEqual(2 * FairQueue.sizeOf(queue, tier as FairQueue.Tier) + 64)
              }
              expect(lines[4]).toBeLessThanOrEqual(2 * FairQueue.size(queue) + 64)
            }
          }
        ),
        { numRuns: 5 }
      )
    })
  })

  describe("at any time", () => {
    const steps = fc.array(
      fc.oneof(
        fc.record({
          act: fc.constant("offer" as const),
          tier: fc.integer({ min: 0, max: 3 }),
          cost: fc.integer({ min: 0, max: 20 }),
          order: fc.integer({ min: -3, max: 3 }),
          waited: fc.integer({ min: 0, max: 50 })
        }),
        fc.record({ act: fc.constant("take" as const), peeks: fc.integer({ min: 0, max: 3 }) }),
        fc.record({ act: fc.constant("cancel" as const), pick: fc.nat() }),
        fc.record({ act: fc.constant("again" as const), pick: fc.nat() })
      ),
      { maxLength: 300, size: "max" }
    )

    it("what was offered was taken, was cancelled or waits, each exactly once, in the order promised", () => {
      fc.assert(
        fc.property(steps, fc.boolean(), (history, strict) => {
          const queue = make({ strict, ageBoundMillis: 60 })
          // The model: everybody who waits, in order of arrival.
          let waiting: Array<Waiter> = []
          const gone: Array<Waiter> = []
          let [offered, taken, cancelled, now] = [0, 0, 0, 0]
          for (const step of history) {
            now += 1
            if (step.act === "offer") {
              const waiter = new Waiter(step.tier, { ...step, at: now - step.waited })
              FairQueue.offer(queue, waiter)
              waiting.push(waiter)
              offered++
            } else if (step.act === "again" && gone.length > 0) {
              const [waiter] = gone.splice(step.pick % gone.length, 1)
              FairQueue.offer(queue, waiter!)
              waiting.push(waiter!)
              offered++
            } else if (step.act === "cancel" && waiting.length > 0) {
              const waiter = waiting[step.pick % waiting.length]!
              expect(FairQueue.cancel(queue, waiter)).toBe(true)
              waiting = waiting.filter((other) => other !== waiter)
              gone.push(waiter)
              cancelled++
            } else if (step.act === "take") {
              const seen = FairQueue.peek(queue, now)
              for (let look = 0; look < step.peeks; look++) expect(FairQueue.peek(queue, now)).toBe(seen)
              const waiter = FairQueue.take(queue, now)
              expect(waiter).toBe(seen)
              if (waiter === undefined) {
                expect(waiting).toEqual([])
              } else {
                const oldest = waiting.reduce((a, b) => (b.enqueuedMillis < a.enqueuedMillis ? b : a))
                const tier = waiting.filter((other) => other.tier === waiter.tier)
                if (now - oldest.enqueuedMillis >= 60) expect(waiter).toBe(oldest)
                else expect(waiter).toBe(tier.reduce((a, b) => (b.order < a.order ? b : a)))
                waiting = waiting.filter((other) => other !== waiter)
                gone.push(waiter)
                taken++
              }
            }
            expect(offered).toBe(taken + cancelled + FairQueue.size(queue))
            expect(FairQueue.size(queue)).toBe(waiting.length)
            for (const tier of [0, 1, 2, 3] as const) {
              expect(FairQueue.sizeOf(queue, tier)).toBe(waiting.filter((other) => other.tier === tier).length)
            }
            expect(FairQueue.oldestEnqueuedMillis(queue)).toBe(
              waiting.reduce((a, b) => Math.min(a, b.enqueuedMillis), Infinity)
            )
          }
          expect(new Set(FairQueue.items(queue))).toEqual(new Set(waiting))
          expect([...FairQueue.items(queue)]).toHaveLength(waiting.length)
        }),
        { numRuns: 300 }
      )
    })
  })

  describe("refusals", () => {
    it("names module, option and value of a bad configuration", () => {
      expect(() => make({ weights: [8, 4, 0, 1] })).toThrow(
        new RangeError("fairQueue.make: weights must be four finite numbers > 0, got 8,4,0,1")
      )
      expect(() => make({ ageBoundMillis: Number.NaN })).toThrow("ageBoundMillis must be a number > 0, got NaN")
      expect(() => make({ minimumCost: 0 })).toThrow("minimumCost must be a finite number > 0, got 0")
    })

    it("refuses items out of range and leaves the line as it was", () => {
      const queue = make()
      const bad = [
        new Waiter(4),
        new Waiter(1.5),
        ...[Number.NaN, -1, Infinity, 1e308].map((cost) => new Waiter(0, { cost })),
        ...[Number.NaN, Infinity].flatMap((value) => [new Waiter(0, { order: value }), new Waiter(0, { at: value })])
      ]
      for (const waiter of bad) expect(() => FairQueue.offer(queue, waiter)).toThrow(RangeError)
      expect(FairQueue.size(queue)).toBe(0)
      expect(FairQueue.oldestEnqueuedMillis(queue)).toBe(Infinity)
    })

    it("refuses an item that waits already", () => {
      const waiter = new Waiter(0)
      const queue = lineOf([waiter])
      expect(() => FairQueue.offer(queue, waiter)).toThrow("ticket must be 0")
      expect(FairQueue.size(queue)).toBe(1)
    })
  })

  // Twice is the law; the rest is for the noise of a shared machine.
  it(
    "F24: an operation with 100 000 waiting costs at most 2.5 times one with 1 000 waiting",
    { retry: 2, timeout: 60_000 },
    () => {
      const millisPerOperation = (waiting: number, orderOf: (index: number) => number) => {
        const waiters = [...Array(waiting + 10_000).keys()].map(
          (index) => new Waiter(index % 4, { cost: 1 + (index % 7), order: orderOf(index), at: index })
        )
        // Small lines are run more often, so that both are timed over the same number of operations.
        const rounds = Math.round(200_000 / (waiting + 10_000))
        const started = process.cpuUsage()
        for (let round = 0; round < rounds; round++) {
          const queue = make({ ageBoundMillis: Infinity })
          for (let index = 0; index < waiting; index++) FairQueue.offer(queue, waiters[index]!)
          for (let index = waiting; index < waiters.length; index++) {
            FairQueue.offer(queue, waiters[index]!)
            FairQueue.take(queue, 0)
          }
          for (let index = 0; index < waiters.length; index += 2) FairQueue.cancel(queue, waiters[index]!)
          drain(queue)
        }
        const { user, system } = process.cpuUsage(started)
        return (user + system) / (rounds * (waiting + 10_000))
      }
      const median = (values: Array<number>) => values.sort((a, b) => a - b)[2]!
      const orders: Record<string, (index: number) => number> = {
        "in order of arrival": () => 0,
        "newest first": (index) => -index,
        scattered: (index) => (index * 7919) % 100_003
      }
      for (const [name, orderOf] of Object.entries(orders)) {
        const [few, many]: [Array<number>, Array<number>] = [[], []]
        for (let run = 0; run < 6; run++) {
          few.push(millisPerOperation(1000, orderOf))
          many.push(millisPerOperation(100_000, orderOf))
        }
        // The first run warms up.
        const ratio = median(many.slice(1)) / median(few.slice(1))
        expect(ratio, name).toBeLessThan(2.5)
        if (process.env["ESPALIER_FIGURES"] !== undefined) process.stdout.write(`${name}: ${ratio.toFixed(2)}\n`)
      }
    }
  )
})
