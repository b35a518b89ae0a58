import { describe, expect, it } from "vitest"
import * as fc from "fast-check"
import * as RetryDeposits from "../../src/internal/retryDeposits.ts"

interface Entry {
  readonly at: number
  readonly deposits: number
  readonly cost: number
}

const deposits = (state: RetryDeposits.RetryDeposits, count: number, now: number) => {
  for (let index = 0; index < count; index++) RetryDeposits.deposit(state, now)
}

const granted = (state: RetryDeposits.RetryDeposits, asked: number, now: number) => {
  let count = 0
  for (let index = 0; index < asked; index++) if (RetryDeposits.withdraw(state, 1, now)) count++
  return count
}

/** Runs a history and returns what was deposited and what was granted, in order of time. */
const run = (
  options: RetryDeposits.Options,
  steps: ReadonlyArray<{ readonly gap: number; readonly deposits: number; readonly costs: ReadonlyArray<number> }>
) => {
  const state = RetryDeposits.make(options)
  const entries: Array<Entry> = []
  let at = 0
  for (const step of steps) {
    at += step.gap
    deposits(state, step.deposits, at)
    entries.push({ at, deposits: step.deposits, cost: 0 })
    for (const cost of step.costs) {
      const promised = RetryDeposits.balance(state, at)
      const allowed = RetryDeposits.withdraw(state, cost, at)
      expect(allowed).toBe(cost <= promised)
      if (allowed) entries.push({ at, deposits: 0, cost })
    }
  }
  return entries
}

/** Cost and permission of a window, both of its ends included. */
const windowOf = (entries: ReadonlyArray<Entry>, from: number, to: number, ratio: number, reserve: number) => {
  let [cost, first] = [0, 0]
  for (const entry of entries) {
    if (entry.at < from || entry.at > to) continue
    cost += entry.cost
    first += entry.deposits
  }
  return { cost, allowed: Math.max(reserve, Math.floor(ratio * first + 1e-9)) }
}

const anySteps = fc.array(
  fc.record({
    gap: fc.oneof(fc.constant(0), fc.double({ min: 0, max: 40, noNaN: true }), fc.integer({ min: 0, max: 400 })),
    deposits: fc.nat(30),
    costs: fc.array(fc.integer({ min: 1, max: 2 }), { maxLength: 6, size: "max" })
  }),
  { maxLength: 60, size: "max" }
)
const anyOptions = fc.record({
  ratio: fc.constantFrom(0, 0.1, 0.25, 0.333, 1),
  reserve: fc.integer({ min: 0, max: 6 }),
  windowMillis: fc.constantFrom(7, 60, 100, 600, 999)
})

describe("retryDeposits", () => {
  it("F47: a quiet tree may retry: one call a minute that fails is retried once", () => {
    const state = RetryDeposits.make()
    for (let minute = 0; minute < 20; minute++) {
      RetryDeposits.deposit(state, minute * 60_000)
      expect(RetryDeposits.withdraw(state, 1, minute * 60_000 + 500)).toBe(true)
    }
  })

  it("F46: of six calls that fail at once three are retried, however many others are in flight", () => {
    const state = RetryDeposits.make()
    deposits(state, 6, 0)
    expect(granted(state, 6, 100)).toBe(3)
  })

  it("F49: a drained budget refills: after a thousand first attempts one more failure is retried", () => {
    for (const carryOver of [false, true]) {
      const state = RetryDeposits.make({ carryOver })
      expect(granted(state, 10, 0)).toBe(3)
      deposits(state, 29, 1000)
      expect(RetryDeposits.withdraw(state, 1, 1000)).toBe(false)
      deposits(state, 971, 2000)
      expect(RetryDeposits.withdraw(state, 1, 4000)).toBe(true)
    }
  })

  it("a steady stream is retried at the ratio for ever with carry-over, at three quarters of it without", () => {
    const retriesOf = (carryOver: boolean) => {
      const state = RetryDeposits.make({ carryOver })
      let retries = 0
      for (let call = 0; call < 20_000; call++) {
        RetryDeposits.deposit(state, call * 10)
        if (RetryDeposits.withdraw(state, 1, call * 10)) retries++
      }
      return retries
    }
    // A window may begin with a retry, and then holds one gap between retries less than it holds retries: four of
    // them, one more than the reserve, need forty first attempts in three gaps.
    expect(retriesOf(false)).toBeGreaterThanOrEqual(1490)
    expect(retriesOf(true)).toBeGreaterThanOrEqual(1950)
    expect(retriesOf(true)).toBeLessThanOrEqual(2003)
  })

  it("a storm in which everything fails is retried at no more than the ratio", () => {
    const state = RetryDeposits.make({ reserve: 3, ratio: 0.2 })
    let retries = 0
    for (let call = 0; call < 10_000; call++) {
      RetryDeposits.deposit(state, call)
      retries += granted(state, 3, call)
    }
    expect(retries).toBeLessThanOrEqual(2003)
  })

  it("a retry after a time-out costs two", () => {
    const state = RetryDeposits.make()
    expect(RetryDeposits.withdraw(state, 2, 0)).toBe(true)
    expect(RetryDeposits.balance(state, 0)).toBe(1)
    expect(RetryDeposits.withdraw(state, 2, 0)).toBe(false)
    expect(RetryDeposits.withdraw(state, 1, 0)).toBe(true)
    expect(RetryDeposits.balance(state, 0)).toBe(0)
  })

  it("the reserve comes back when the retries that used it leave the window, not before", () => {
    const state = RetryDeposits.make({ reserve: 2, windowMillis: 6000 })
    expect(granted(state, 5, 0)).toBe(2)
    expect(granted(state, 5, 6000)).toBe(0)
    // At most one slot, a sixtieth of the window, later than exact.
    expect(granted(state, 5, 6101)).toBe(2)
  })

  it("without carry-over a burst is worth the reserve, whatever went before", () => {
    const state = RetryDeposits.make()
    deposits(state, 1000, 0)
    expect(granted(state, 50, 30_000)).toBe(3)
  })

  it("with carry-over the first attempts of the last window pay for a burst, and then expire", () => {
    const burst = (now: number) => {
      const state = RetryDeposits.make({ carryOver: true })
      deposits(state, 1000, 0)
      return granted(state, 200, now)
    }
    expect(burst(30_000)).toBe(100)
    expect(burst(60_000)).toBe(3)
  })

  it("with a ratio of 0 only the reserve is left", () => {
    for (const carryOver of [false, true]) {
      const state = RetryDeposits.make({ ratio: 0, carryOver })
      deposits(state, 100_000, 0)
      expect(granted(state, 10, 0)).toBe(3)
    }
  })

  it("counts exactly: ten deposits at 0.1 are one retry and nine are none", () => {
    for (const first of [9, 10]) {
      const state = RetryDeposits.make({ reserve: 0, carryOver: true })
      deposits(state, first, 0)
      expect(granted(state, 5, 0)).toBe(first === 10 ? 1 : 0)
    }
  })

  it("a clock that steps back locks nobody out", () => {
    const hour = 3_600_000
    for (const carryOver of [false, true]) {
      const state = RetryDeposits.make({ carryOver })
      expect(granted(state, 5, hour)).toBe(3)
      expect(granted(state, 5, 0)).toBe(0)
      deposits(state, 100, 10)
      expect(granted(state, 1, 20)).toBe(1)
    }
  })

  it("a clock that steps back does not bring back what has expired", () => {
    const state = RetryDeposits.make({ carryOver: true })
    deposits(state, 1000, 0)
    expect(RetryDeposits.balance(state, 60_500)).toBe(3)
    expect(RetryDeposits.balance(state, 30_000)).toBe(3)
  })

  it("law: in every window, wherever it begins, retries cost at most max(reserve, ratio × first attempts)", () => {
    fc.assert(
      fc.property(anyOptions, anySteps, (options, steps) => {
        const entries = run(options, steps)
        const { ratio, reserve, windowMillis } = options
        // What a window holds changes only where one of its ends passes an entry, so these are all there are.
        for (const { at } of entries) {
          for (const from of [at, at - windowMillis, at + 1e-6, at - windowMillis + 1e-6]) {
            const { allowed, cost } = windowOf(entries, from, from + windowMillis, ratio, reserve)
            expect(cost).toBeLessThanOrEqual(allowed)
          }
        }
      }),
      { numRuns: 400 }
    )
  })

  it("law with carry-over: the same in every window that ends with a retry", () => {
    fc.assert(
      fc.property(anyOptions, anySteps, (options, steps) => {
        const entries = run({ ...options, carryOver: true }, steps)
        for (const [index, { at, cost }] of entries.entries()) {
          if (cost === 0) continue
          const past = entries.slice(0, index + 1)
          const window = windowOf(past, at - options.windowMillis, at, options.ratio, options.reserve)
          expect(window.cost).toBeLessThanOrEqual(window.allowed)
        }
      }),
      { numRuns: 400 }
    )
  })

  it("refuses only what would break the law, a slot's length aside", () => {
    fc.assert(
      fc.property(anyOptions, anySteps, (options, steps) => {
        const { ratio, reserve, windowMillis } = options
        const state = RetryDeposits.make(options)
        const slot = Math.ceil(windowMillis / 60)
        const entries: Array<Entry> = []
        let at = 0
        for (const step of steps) {
          at += step.gap
          deposits(state, step.deposits, at)
          entries.push({ at, deposits: step.deposits, cost: 0 })
          for (const cost of step.costs) {
            const asked = [...entries, { at, deposits: 0, cost }]
            if (RetryDeposits.withdraw(state, cost, at)) {
              entries.push(asked.at(-1)!)
              continue
            }
            // Some retry, now or within a window and two slots, must have too few first attempts after it.
            const reason = asked.some(({ at: from, cost: own }, index) => {
              if (own === 0 || at - from > windowMillis + 2 * slot) return false
              const window = windowOf(asked.slice(index), from, at, ratio, reserve)
              return window.cost > window.allowed
            })
            expect(reason).toBe(true)
          }
        }
      }),
      { numRuns: 300 }
    )
  })

  it("keeps no more than its slots and the reserve, whatever the traffic", () => {
    const state = RetryDeposits.make({ reserve: 5, ratio: 1 })
    for (let now = 0; now < 200_000; now += 3) {
      RetryDeposits.deposit(state, now)
      RetryDeposits.withdraw(state, 1, now)
      expect(state.recent.length).toBeLessThanOrEqual(5)
      expect(state.floors.length).toBeLessThanOrEqual(62)
    }
    expect(state.deposited.length + state.withdrawn.length).toBe(124)
  })

  it("starts its totals over once no retry is left to measure from", () => {
    const state = RetryDeposits.make()
    deposits(state, 500, 0)
    RetryDeposits.withdraw(state, 1, 0)
    RetryDeposits.balance(state, 120_000)
    expect([state.depositedTotal, state.withdrawnTotal]).toEqual([0, 0])
  })

  it("names module, option and value of a bad configuration", () => {
    expect(() => RetryDeposits.make({ ratio: Number.NaN })).toThrow(
      new RangeError("retryDeposits.make: ratio must be a number from 0 to 1, got NaN")
    )
    expect(() => RetryDeposits.make({ ratio: 1.1 })).toThrow("ratio must be")
    for (const reserve of [-1, 0.5, Infinity]) {
      expect(() => RetryDeposits.make({ reserve })).toThrow("reserve must be an integer from 0 to 10000")
    }
    for (const windowMillis of [0, 1.5, Number.NaN]) {
      expect(() => RetryDeposits.make({ windowMillis })).toThrow("windowMillis must be an integer >= 1")
    }
  })

  it("refuses costs and instants that are none, and stays as it was", () => {
    for (const cost of [Number.NaN, -1, 0, 1.5, Infinity, 1e308]) {
      const state = RetryDeposits.make()
      expect(() => RetryDeposits.withdraw(state, cost, 0)).toThrow("cost must be an integer >= 1")
      expect(state).toEqual(RetryDeposits.make())
    }
    expect(() => RetryDeposits.deposit(RetryDeposits.make(), Number.NaN)).toThrow("nowMillis must be")
  })
})
