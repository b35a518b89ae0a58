import { describe, expect, it } from "vitest"
import * as fc from "fast-check"
import * as AdaptiveLimit from "../../src/internal/adaptiveLimit.ts"

const make = (initial: number, options: AdaptiveLimit.Options = {}) => AdaptiveLimit.make({ initial, ...options })

const succeed = (state: AdaptiveLimit.AdaptiveLimit, count: number, now: number, inFlight = Infinity) => {
  for (let index = 0; index < count; index++) AdaptiveLimit.succeeded(state, now, inFlight, now)
}

/** One median: ten calls that began at `started` and whose first token took `millis`. */
const median = (state: AdaptiveLimit.AdaptiveLimit, started: number, millis: number) => {
  for (let index = 0; index < 10; index++) AdaptiveLimit.firstToken(state, started, started + millis)
}

/** A state that knows a mean latency of a second and a baseline of 100 ms. */
const seasoned = (initial: number, options: AdaptiveLimit.Options = {}) => {
  const state = make(initial, options)
  AdaptiveLimit.succeeded(state, 0, 0, 1000)
  median(state, 0, 100)
  expect(state).toMatchObject({ slots: initial, baseMillis: 100, meanLatencyMillis: 1000 })
  return state
}

/**
 * A provider that is always used to the limit. Beyond `knee` in flight its calls queue, and a call that meets more
 * than `wall` is throttled at once. Returns the limit at every second.
 */
const simulate = (
  state: AdaptiveLimit.AdaptiveLimit,
  seconds: number,
  provider: {
    readonly knee: number
    readonly wall: number
    readonly firstMillis?: number
    readonly timeoutMillis?: number
  }
) => {
  interface Call {
    readonly started: number
    first: number
    end: number
    end429: boolean
  }
  const limits: Array<number> = []
  let calls: Array<Call> = []
  let turn = 0
  for (let now = 0; now < seconds * 1000; now += 10) {
    for (const call of calls) {
      if (call.first <= now) {
        AdaptiveLimit.firstToken(state, call.started, now)
        call.first = Infinity
      }
      if (call.end > now) continue
      const overtime = now - call.started >= (provider.timeoutMillis ?? Infinity)
      if (call.end429 || overtime) AdaptiveLimit.dropped(state, call.started, now)
      else AdaptiveLimit.succeeded(state, call.started, calls.length, now)
    }
    calls = calls.filter((call) => call.end > now)
    while (calls.length < AdaptiveLimit.limit(state)) {
      const slowdown = Math.max(1, calls.length / provider.knee)
      const length = 500 + 1000 * ((turn++ * 0.618) % 1)
      // What is beyond the knee waits for one of those within it.
      const first = (provider.firstMillis ?? 200) + (slowdown - 1) * 1000
      const end429 = calls.length >= provider.wall
      const work = Math.min(first + length, provider.timeoutMillis ?? Infinity)
      calls.push({ started: now, first: end429 ? Infinity : now + first, end: now + (end429 ? 300 : work), end429 })
    }
    if (now % 1000 === 0) limits.push(AdaptiveLimit.limit(state))
  }
  return limits
}

describe("adaptiveLimit", () => {
  describe("loss", () => {
    it("cuts the limit to 0.8 at once", () => {
      const state = make(100)
      AdaptiveLimit.dropped(state, 0, 0)
      expect(AdaptiveLimit.limit(state)).toBe(80)
    })

    it("cuts to the configured ratio", () => {
      const state = make(100, { cutRatio: 0.5 })
      AdaptiveLimit.dropped(state, 0, 0)
      expect(AdaptiveLimit.limit(state)).toBe(50)
    })

    it("cuts once in two seconds, however many are dropped", () => {
      const state = make(100)
      for (let index = 0; index < 50; index++) AdaptiveLimit.dropped(state, 1000, 1000)
      AdaptiveLimit.dropped(state, 2999, 2999)
      expect(AdaptiveLimit.limit(state)).toBe(80)
      AdaptiveLimit.dropped(state, 3000, 3000)
      expect(AdaptiveLimit.limit(state)).toBe(64)
    })

    it("cuts once in the configured cool-down, or in twice the median time to the first token", () => {
      const short = make(100, { coolDownMillis: 10 })
      AdaptiveLimit.dropped(short, 0, 0)
      AdaptiveLimit.dropped(short, 10, 10)
      expect(AdaptiveLimit.limit(short)).toBe(64)

      const slow = make(100)
      median(slow, 0, 3000)
      AdaptiveLimit.dropped(slow, 3000, 3000)
      AdaptiveLimit.dropped(slow, 8999, 8999)
      expect(AdaptiveLimit.limit(slow)).toBe(80)
      AdaptiveLimit.dropped(slow, 9000, 9000)
      expect(AdaptiveLimit.limit(slow)).toBe(64)
    })

    it("ignores whatever comes of calls that began before the last cut", () => {
      const state = make(100)
      AdaptiveLimit.dropped(state, 0, 1000)
      AdaptiveLimit.dropped(state, 999, 60_000)
      AdaptiveLimit.succeeded(state, 999, 100, 60_000)
      median(state, 999, 100)
      expect(state).toMatchObject({ slots: 80, baseMillis: Infinity, meanLatencyMillis: Number.NaN })
    })

    it("never cuts below the minimum", () => {
      const state = make(20, { minimum: 12 })
      for (let now = 0; now < 100_000; now += 2000) AdaptiveLimit.dropped(state, now, now)
      expect(AdaptiveLimit.limit(state)).toBe(12)
    })
  })

  describe("growth", () => {
    it("is four slots a round while far from where it hurt, and one slot near it", () => {
      const state = make(100)
      succeed(state, 100, 0)
      expect(state.slots).toBeCloseTo(104, 0)
      AdaptiveLimit.dropped(state, 0, 0)
      const from = state.slots
      succeed(state, 83, 1)
      expect(state.slots - from).toBeCloseTo(4, 0)
      while (state.slots < 94) succeed(state, 1, 1)
      const near = state.slots
      succeed(state, 94, 1)
      expect(state.slots - near).toBeCloseTo(1, 1)
    })

    it("forgets where it hurt once it is well beyond", () => {
      const state = make(20)
      AdaptiveLimit.dropped(state, 0, 0)
      expect(state.hurtSlots).toBe(20)
      while (state.slots <= 24) succeed(state, 1, 1)
      expect(state.hurtSlots).toBe(Infinity)
    })

    it("needs the limit to be used", () => {
      const state = make(100)
      succeed(state, 1000, 0, 79)
      expect(state.slots).toBe(100)
      succeed(state, 1, 0, 80)
      expect(state.slots).toBeGreaterThan(100)
      const eager = make(100, { useRatio: 0.5 })
      succeed(eager, 1, 0, 50)
      expect(eager.slots).toBeGreaterThan(100)
    })

    it("stops at the maximum", () => {
      const state = make(100, { maximum: 101 })
      succeed(state, 1000, 0)
      expect(AdaptiveLimit.limit(state)).toBe(101)
    })
  })

  describe("below ten slots", () => {
    it("starts from one, and grows by one after as many successes as it has slots", () => {
      const state = AdaptiveLimit.make()
      const limits = [...Array(10).keys()].map(() => {
        succeed(state, 1, 0)
        return AdaptiveLimit.limit(state)
      })
      expect(limits).toEqual([2, 2, 3, 3, 3, 4, 4, 4, 4, 5])
    })

    it("falls by one a cool-down, and the count of successes starts over", () => {
      const state = make(5)
      succeed(state, 4, 0)
      AdaptiveLimit.dropped(state, 0, 0)
      AdaptiveLimit.dropped(state, 1, 1)
      expect(AdaptiveLimit.limit(state)).toBe(4)
      succeed(state, 3, 1)
      expect(AdaptiveLimit.limit(state)).toBe(4)
      AdaptiveLimit.dropped(state, 2000, 2000)
      expect(AdaptiveLimit.limit(state)).toBe(3)
    })

    it("has whole slots only, also when it comes from above", () => {
      const state = make(10)
      succeed(state, 3, 0)
      expect(state.slots * 0.8).toBeCloseTo(8.9, 1)
      AdaptiveLimit.dropped(state, 0, 0)
      expect(state.slots).toBe(8)
      AdaptiveLimit.dropped(state, 2000, 2000)
      expect(state.slots).toBe(7)
    })
  })

  describe("delay", () => {
    it("subtracts what must be queued inside, by Little's law", () => {
      const state = seasoned(100)
      median(state, 1000, 330)
      // 100 slots × (330 - 1.3 × 100) / 1000.
      expect(state.slots).toBeCloseTo(80, 10)
    })

    it("tolerates first tokens up to the configured multiple of the baseline", () => {
      const state = seasoned(100, { toleranceRatio: 3 })
      median(state, 1000, 330)
      expect(state.slots).toBe(100)
    })

    it("leaves alone what is no more than a tenth of the limit, or no more than three slots", () => {
      const tenth = seasoned(100)
      median(tenth, 1000, 229)
      expect(tenth.slots).toBe(100)
      const three = seasoned(20)
      median(three, 1000, 279)
      expect(three.slots).toBe(20)
      median(three, 2000, 290)
      expect(three.slots).toBeCloseTo(16.8, 10)
    })

    it("takes off at most half at once", () => {
      const state = seasoned(100)
      median(state, 1000, 5000)
      expect(state.slots).toBe(50)
    })

    it("takes off one slot below ten", () => {
      const state = seasoned(9)
      median(state, 1000, 900)
      expect(state.slots).toBe(8)
    })

    it("takes no median of samples from both sides of a cut", () => {
      const state = seasoned(100)
      for (let index = 0; index < 9; index++) AdaptiveLimit.firstToken(state, 1000, 1090)
      AdaptiveLimit.dropped(state, 1000, 2000)
      AdaptiveLimit.firstToken(state, 2000, 2050)
      expect(state.baseMillis).toBe(100)
    })

    it("looks at medians of ten, which a few odd answers do not move", () => {
      const state = seasoned(100)
      for (const millis of [100, 9000, 100, 9000, 100, 9000, 100, 9000, 100]) {
        AdaptiveLimit.firstToken(state, 1000, 1000 + millis)
      }
      expect(state.medianMillis).toBe(100)
      AdaptiveLimit.firstToken(state, 1000, 1110)
      expect(state.medianMillis).toBe(105)
      expect(state.slots).toBe(100)
    })

    it("lowers its baseline at once, and raises it for no median at the full limit", () => {
      const state = seasoned(100)
      median(state, 1000, 90)
      expect(state.baseMillis).toBe(90)
      for (let round = 0; round < 50; round++) median(state, 1000, 110)
      expect(state.baseMillis).toBe(90)
    })

    it("halves the limit for one set of ten when no median was as low for sixty of them and thirty latencies", () => {
      const state = seasoned(100)
      for (let round = 0; round < 59; round++) median(state, 1000, 110)
      median(state, 1000, 110)
      expect(AdaptiveLimit.limit(state)).toBe(100)
      median(state, 30_080, 110)
      expect(AdaptiveLimit.limit(state)).toBe(50)
      // Calls that began before tell of the full limit, and successes now tell of no higher one.
      median(state, 30_189, 9000)
      succeed(state, 100, 30_190)
      expect(state).toMatchObject({ slots: 100, baseMillis: 100 })
      expect(AdaptiveLimit.limit(state)).toBe(50)
      median(state, 30_190, 105)
      expect(AdaptiveLimit.limit(state)).toBe(100)
      expect(state.baseMillis).toBe(105)
    })

    it("waits for sixty medians however long that takes", () => {
      const state = seasoned(100)
      for (let round = 0; round < 59; round++) median(state, 1e6, 110)
      expect(AdaptiveLimit.limit(state)).toBe(100)
      median(state, 1e6, 110)
      expect(AdaptiveLimit.limit(state)).toBe(50)
    })

    it("does not halve a limit below its minimum", () => {
      const state = seasoned(100, { minimum: 70 })
      for (let round = 0; round < 60; round++) median(state, 1e6, 110)
      expect(AdaptiveLimit.limit(state)).toBe(70)
    })

    it("F58: never learns from an overload that it is normal, when fewer calls at once wait less", () => {
      const state = seasoned(400, { minimum: 100 })
      let halved = 0
      for (let now = 1000; now < 1_000_000; now += 3000) {
        // Even half the limit is far too much, yet better.
        const isHalved = state.halvedSinceMillis < Infinity
        if (isHalved) halved++
        median(state, now, isHalved ? 1500 : 2000)
        expect(state.baseMillis).toBe(100)
      }
      expect(state.slots).toBe(100)
      expect(halved).toBe(5)
    })

    it("accepts that a provider has become slower when fewer calls at once do not help, and grows again", () => {
      const state = seasoned(20)
      let now = 1000
      for (let round = 0; round < 61; round++) {
        now += 5000
        AdaptiveLimit.succeeded(state, now, 0, now + 1000)
        median(state, now + 1000, 500)
      }
      expect(state.baseMillis).toBe(500)
      expect(AdaptiveLimit.limit(state)).toBeLessThan(20)
      for (let round = 0; round < 300; round++) {
        succeed(state, 1, now + 10_000)
        median(state, now + 10_000, 500)
      }
      expect(AdaptiveLimit.limit(state)).toBeGreaterThan(20)
    })
  })

  describe("in a closed loop", () => {
    it("F55: falls to its minimum when everything is throttled, however fast the refusals come", () => {
      const limits = simulate(make(64), 60, { knee: 40, wall: 0 })
      expect(limits.at(-1)).toBe(1)
    })

    it("F56: falls to its minimum when every call runs into the time-out", () => {
      const limits = simulate(make(64), 300, { knee: 1000, wall: Infinity, firstMillis: 10_000, timeoutMillis: 5000 })
      expect(limits.at(-1)).toBe(1)
    })

    it("finds the knee by delay alone, from below and from above, and pays little for measuring", () => {
      for (const knee of [15, 40, 300]) {
        for (const initial of [1, 5 * knee]) {
          const late = simulate(make(initial, { maximum: 3000 }), 400, { knee, wall: Infinity }).slice(200)
          const measuring = late.filter((slots) => slots < 0.85 * knee).length
          expect(measuring / late.length).toBeLessThan(0.1)
          expect(Math.max(...late)).toBeLessThanOrEqual(1.4 * knee)
          expect(late.reduce((sum, slots) => sum + Math.min(slots, knee), 0) / late.length).toBeGreaterThan(0.95 * knee)
        }
      }
    })

    it("finds the knee although it began in an overload and took that for normal", () => {
      const state = make(200)
      AdaptiveLimit.succeeded(state, 0, 0, 5000)
      median(state, 0, 4200)
      const late = simulate(state, 600, { knee: 40, wall: Infinity }).slice(300)
      expect(Math.max(...late)).toBeLessThanOrEqual(56)
    })

    it("stays around a wall that throttles, with few throttles a minute", () => {
      const late = simulate(make(8), 400, { knee: 1000, wall: 30 }).slice(200)
      expect(Math.min(...late)).toBeGreaterThanOrEqual(22)
      expect(Math.max(...late)).toBeLessThanOrEqual(32)
    })

    it("finds a small wall by whole slots", () => {
      const late = simulate(make(1), 200, { knee: 1000, wall: 4 }).slice(100)
      expect(Math.min(...late)).toBeGreaterThanOrEqual(3)
      expect(Math.max(...late)).toBeLessThanOrEqual(5)
    })
  })

  it("F32: a clock that steps back neither stops the learning nor makes negative times", () => {
    const state = make(100)
    AdaptiveLimit.dropped(state, 3_600_000, 3_600_000)
    AdaptiveLimit.succeeded(state, 3_600_000, 80, 10)
    expect(state.slots).toBe(80)
    succeed(state, 1, 11)
    expect(state.slots).toBeGreaterThan(80)
    AdaptiveLimit.dropped(state, 2011, 2011)
    expect(state.slots).toBeLessThan(70)
  })

  it("stays between minimum and maximum, finite, and whole below ten, through any history", () => {
    const step = fc.record({
      act: fc.constantFrom("succeeded", "dropped", "firstToken"),
      gap: fc.constantFrom(0, 1, 500, 3000),
      lasted: fc.integer({ min: -10, max: 5000 }),
      inFlight: fc.integer({ min: 0, max: 60 })
    })
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 20 }),
        fc.nat(40),
        fc.array(step, { maxLength: 300, size: "max" }),
        (minimum, room, history) => {
          const state = AdaptiveLimit.make({ minimum, maximum: minimum + room })
          let now = 0
          for (const { act, gap, inFlight, lasted } of history) {
            now += gap
            const before = state.slots
            if (act === "succeeded") AdaptiveLimit.succeeded(state, now - lasted, inFlight, now)
            else if (act === "dropped") AdaptiveLimit.dropped(state, now - lasted, now)
            else AdaptiveLimit.firstToken(state, now - lasted, now)
            if (act === "succeeded") expect(state.slots).toBeGreaterThanOrEqual(before)
            else expect(state.slots).toBeLessThanOrEqual(before)
            expect(state.slots >= minimum && state.slots <= minimum + room).toBe(true)
            if (state.slots < 10) expect(Number.isInteger(state.slots)).toBe(true)
          }
        }
      ),
      { numRuns: 300 }
    )
  })

  it("names module, option and value of a bad configuration", () => {
    const bad: Array<[AdaptiveLimit.Options, string]> = [
      [{ minimum: 0 }, "adaptiveLimit.make: minimum must be an integer >= 1, got 0"],
      [{ minimum: 5, maximum: 4 }, "maximum must be an integer >= minimum, got 4"],
      [{ initial: 2000 }, "initial must be an integer from minimum to maximum, got 2000"],
      [{ initial: Number.NaN }, "initial must be an integer"],
      [{ cutRatio: 1 }, "cutRatio must be a number > 0 and < 1, got 1"],
      [{ coolDownMillis: 0 }, "coolDownMillis must be a finite number > 0, got 0"],
      [{ useRatio: 1.1 }, "useRatio must be a number from 0 to 1, got 1.1"],
      [{ toleranceRatio: 0.9 }, "toleranceRatio must be a finite number >= 1, got 0.9"]
    ]
    for (const [options, message] of bad) expect(() => AdaptiveLimit.make(options)).toThrow(message)
  })
})
