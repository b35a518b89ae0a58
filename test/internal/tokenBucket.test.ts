import { describe, expect, it } from "vitest"
import * as fc from "fast-check"
import * as TokenBucket from "../../src/internal/tokenBucket.ts"

const make = (ratePerSecond = 10, capacity = 10, level?: number) =>
  TokenBucket.make({ ratePerSecond, capacity }, 0, level)

const hour = 3_600_000

describe("tokenBucket", () => {
  describe("filling and taking", () => {
    it("starts full, or at the level it is given", () => {
      expect(TokenBucket.level(make(), 0)).toBe(10)
      expect(TokenBucket.level(make(10, 10, 3), 0)).toBe(3)
    })

    it("fills at its rate up to its capacity", () => {
      const bucket = make(10, 10, 0)
      expect(TokenBucket.level(bucket, 250)).toBe(2.5)
      expect(TokenBucket.level(bucket, 1_000_000)).toBe(10)
    })

    it("F33: a refused request is not charged", () => {
      const bucket = make()
      expect(TokenBucket.take(bucket, 8, 0)).toBe(true)
      expect(TokenBucket.take(bucket, 5, 0)).toBe(false)
      expect(TokenBucket.take(bucket, 2, 0)).toBe(true)
      expect(TokenBucket.level(bucket, 0)).toBe(0)
    })

    it("takes exactly when it says that it can", () => {
      const bucket = make(10, 10, 4)
      expect(TokenBucket.canTake(bucket, 4, 0)).toBe(true)
      expect(TokenBucket.canTake(bucket, 5, 0)).toBe(false)
      expect(TokenBucket.take(bucket, 5, 0)).toBe(false)
      expect(TokenBucket.take(bucket, 5, 100)).toBe(true)
    })

    it("F31: after an idle window the next call waits 0, and the burst behind it is spread at the rate", () => {
      const bucket = make()
      expect(TokenBucket.take(bucket, 1, 0)).toBe(true)
      const starts: Array<number> = []
      let now = 990
      while (starts.length < 40) {
        now += TokenBucket.waitMillis(bucket, 1, now)
        expect(TokenBucket.take(bucket, 1, now)).toBe(true)
        starts.push(now)
      }
      expect(starts[0]).toBe(990)
      expect(starts.at(-1)).toBeCloseTo(990 + 30 * 100, 1)
    })

    it("F28: a large cost at the head starts as soon as the bucket can have filled", () => {
      const bucket = make(10, 100, 20)
      expect(TokenBucket.waitMillis(bucket, 80, 0)).toBe(6000)
      expect(TokenBucket.canTake(bucket, 80, 5999)).toBe(false)
      expect(TokenBucket.take(bucket, 80, 6000)).toBe(true)
    })

    it("tells at once which cost never fits", () => {
      const bucket = make()
      expect(TokenBucket.neverFits(bucket, 10)).toBe(false)
      expect(TokenBucket.neverFits(bucket, 10.1)).toBe(true)
      expect(TokenBucket.waitMillis(bucket, 10.1, 0)).toBe(Infinity)
      expect(TokenBucket.take(bucket, 10.000_000_001, hour)).toBe(false)
    })
  })

  describe("giving back", () => {
    it("F35: after five cancelled charges everybody waits as if they had never been asked for", () => {
      const bucket = make()
      TokenBucket.take(bucket, 10, 0)
      for (let index = 0; index < 5; index++) {
        expect(TokenBucket.take(bucket, 10, 1000 * (index + 1))).toBe(true)
        TokenBucket.refund(bucket, 10, 1000 * (index + 1))
      }
      expect(TokenBucket.waitMillis(bucket, 10, 5000)).toBe(0)
      TokenBucket.take(bucket, 10, 5000)
      expect(TokenBucket.waitMillis(bucket, 1, 5000)).toBe(100)
    })

    it("never fills above capacity", () => {
      const bucket = make()
      TokenBucket.refund(bucket, 1000, 0)
      expect(TokenBucket.level(bucket, 0)).toBe(10)
    })

    it("returns what was charged too much", () => {
      const bucket = make()
      TokenBucket.take(bucket, 8, 0)
      TokenBucket.reconcile(bucket, 8, 3, 0)
      expect(TokenBucket.level(bucket, 0)).toBe(7)
    })

    it("goes into debt for what was charged too little, which all but free work waits out", () => {
      const bucket = make()
      TokenBucket.take(bucket, 8, 0)
      TokenBucket.reconcile(bucket, 8, 30, 0)
      expect(TokenBucket.level(bucket, 0)).toBe(-20)
      expect(TokenBucket.take(bucket, 1, 0)).toBe(false)
      expect(TokenBucket.take(bucket, 0, 0)).toBe(true)
      expect(TokenBucket.waitMillis(bucket, 1, 0)).toBe(2100)
    })
  })

  describe("changing while it runs", () => {
    it("counts time up to now at the old rate and keeps the level", () => {
      const bucket = make(10, 10, 0)
      TokenBucket.reconfigure(bucket, { ratePerSecond: 1, capacity: 100 }, 500)
      expect(TokenBucket.level(bucket, 500)).toBe(5)
      expect(TokenBucket.level(bucket, 1500)).toBe(6)
      expect(TokenBucket.neverFits(bucket, 100)).toBe(false)
    })

    it("cuts the level to a smaller capacity", () => {
      const bucket = make()
      TokenBucket.reconfigure(bucket, { ratePerSecond: 10, capacity: 4 }, 0)
      expect(TokenBucket.level(bucket, 0)).toBe(4)
    })

    it("stays as it was when the new options are bad", () => {
      const bucket = make()
      const bad = [
        { ratePerSecond: 0, capacity: 1 },
        { ratePerSecond: 1, capacity: Number.NaN }
      ]
      for (const options of bad) expect(() => TokenBucket.reconfigure(bucket, options, 0)).toThrow(RangeError)
      expect(bucket).toEqual(make())
    })
  })

  describe("pausing", () => {
    it("lets nothing start before the instant, not even free work, and fills meanwhile", () => {
      const bucket = make(10, 10, 0)
      TokenBucket.pauseUntil(bucket, 2000, 0)
      expect(TokenBucket.waitMillis(bucket, 1, 500)).toBe(1500)
      expect(TokenBucket.waitMillis(bucket, 0, 500)).toBe(1500)
      expect(TokenBucket.canTake(bucket, 1, 1999)).toBe(false)
      expect(TokenBucket.take(bucket, 0, 1999)).toBe(false)
      expect(TokenBucket.take(bucket, 10, 2000)).toBe(true)
    })

    it("makes the later of pause and filling count", () => {
      const bucket = make(10, 100, 0)
      TokenBucket.pauseUntil(bucket, 2000, 0)
      expect(TokenBucket.waitMillis(bucket, 50, 0)).toBe(5000)
      TokenBucket.pauseUntil(bucket, 1000, 0)
      expect(TokenBucket.waitMillis(bucket, 1, 0)).toBe(2000)
    })

    it("ends at once when resumed", () => {
      const bucket = make()
      TokenBucket.pauseUntil(bucket, 2000, 0)
      TokenBucket.resume(bucket)
      expect(TokenBucket.take(bucket, 1, 0)).toBe(true)
    })
  })

  describe("F32: a clock that steps", () => {
    it("back fills nothing and locks nobody out", () => {
      const bucket = TokenBucket.make({ ratePerSecond: 10, capacity: 10 }, hour)
      TokenBucket.take(bucket, 10, hour)
      expect(TokenBucket.level(bucket, 0)).toBe(0)
      expect(TokenBucket.waitMillis(bucket, 1, 0)).toBe(100)
      expect(TokenBucket.take(bucket, 1, 100)).toBe(true)
    })

    it("back and forward again fills nothing, and time after that counts", () => {
      const bucket = TokenBucket.make({ ratePerSecond: 10, capacity: 10 }, hour)
      TokenBucket.take(bucket, 10, hour)
      TokenBucket.level(bucket, 0)
      expect(TokenBucket.level(bucket, hour)).toBe(0)
      expect(TokenBucket.level(bucket, hour + 100)).toBe(1)
    })

    it("neither lengthens nor shortens a pause", () => {
      const bucket = TokenBucket.make({ ratePerSecond: 10, capacity: 10 }, hour)
      TokenBucket.pauseUntil(bucket, hour + 50, hour)
      expect(TokenBucket.waitMillis(bucket, 1, 0)).toBe(50)
      expect(TokenBucket.waitMillis(bucket, 1, hour)).toBe(50)
      expect(TokenBucket.take(bucket, 1, hour + 50)).toBe(true)
    })
  })

  describe("refusals", () => {
    const bad = [Number.NaN, -1000, Infinity, -Infinity, 1e308]

    it("F34: a cost that is no cost is refused by every operation, and the state is unchanged", () => {
      for (const cost of bad) {
        const bucket = make(10, 10, 5)
        const operations = [
          () => TokenBucket.take(bucket, cost, 100),
          () => TokenBucket.canTake(bucket, cost, 100),
          () => TokenBucket.waitMillis(bucket, cost, 100),
          () => TokenBucket.neverFits(bucket, cost),
          () => TokenBucket.refund(bucket, cost, 100),
          () => TokenBucket.reconcile(bucket, cost, 1, 100),
          () => TokenBucket.reconcile(bucket, 1, cost, 100)
        ]
        for (const operation of operations) expect(operation).toThrow(RangeError)
        expect(bucket).toEqual(make(10, 10, 5))
      }
    })

    it("F34: zero, of either sign, is allowed and free", () => {
      const bucket = make()
      expect(TokenBucket.take(bucket, 0, 0)).toBe(true)
      expect(TokenBucket.take(bucket, -0, 0)).toBe(true)
      expect(TokenBucket.level(bucket, 0)).toBe(10)
    })

    it("refuses an instant that is none, and the state is unchanged", () => {
      for (const now of [Number.NaN, Infinity, -Infinity]) {
        const bucket = make()
        expect(() => TokenBucket.take(bucket, 1, now)).toThrow("nowMillis must be a finite number")
        expect(() => TokenBucket.pauseUntil(bucket, now, 0)).toThrow("untilMillis must be a finite number")
        expect(bucket).toEqual(make())
      }
    })

    it("names module, option and value of a bad configuration", () => {
      expect(() => make(10, Number.NaN)).toThrow(
        new RangeError("tokenBucket.make: capacity must be a finite number > 0, got NaN")
      )
      expect(() => make(0)).toThrow("tokenBucket.make: ratePerSecond must be a finite number > 0, got 0")
      expect(() => make(10, 10, 11)).toThrow("tokenBucket.make: level must be a number from 0 to capacity, got 11")
      expect(() => TokenBucket.make({ ratePerSecond: 1, capacity: 1 }, Number.NaN)).toThrow("nowMillis")
    })
  })

  describe("always", () => {
    const anyRate = fc.integer({ min: 1, max: 5000 }).map((rate) => rate / 7)
    const anyGap = fc.double({ min: 0, max: 3000, noNaN: true })

    it("no sliding window holds more than rate × window + capacity", () => {
      const asks = fc.array(fc.tuple(anyGap, fc.integer({ min: 0, max: 30 })), {
        minLength: 1,
        maxLength: 60,
        size: "max"
      })
      fc.assert(
        fc.property(anyRate, fc.integer({ min: 1, max: 30 }), asks, (rate, capacity, history) => {
          const bucket = make(rate, capacity)
          const taken: Array<readonly [number, number]> = []
          let now = 0
          for (const [gap, cost] of history) {
            now += gap
            if (TokenBucket.take(bucket, cost, now)) taken.push([now, cost])
          }
          for (let first = 0; first < taken.length; first++) {
            let sum = 0
            for (let last = first; last < taken.length; last++) {
              sum += taken[last]![1]
              const allowed = capacity + (rate * (taken[last]![0] - taken[first]![0])) / 1000
              expect(sum).toBeLessThanOrEqual(allowed * (1 + 1e-8))
            }
          }
        })
      )
    })

    it("after the wait the cost fits, and a moment earlier it does not", () => {
      const instant = fc.double({ min: 0, max: 2e12, noNaN: true })
      const cost = fc.double({ min: 0.001, max: 1e6, noNaN: true })
      fc.assert(
        fc.property(
          instant,
          anyRate,
          cost,
          fc.double({ min: 0, max: 1, noNaN: true }),
          (now, rate, capacity, share) => {
            const bucket = TokenBucket.make({ ratePerSecond: rate, capacity }, now, 0)
            // Binary fractions of the clock may eat the first wait by a hair; a second one is then always enough.
            let at = now
            for (let wait = 0; wait < 2; wait++) at += TokenBucket.waitMillis(bucket, capacity * share, at)
            expect(TokenBucket.canTake(bucket, capacity * share, at)).toBe(true)
            const early = at - 0.01 - 1e-6 * (at - now)
            if (early > now) {
              const fresh = TokenBucket.make({ ratePerSecond: rate, capacity }, now, 0)
              expect(TokenBucket.canTake(fresh, capacity * share, early)).toBe(false)
            }
          }
        ),
        { numRuns: 500 }
      )
    })

    it("taking and refunding leaves the level that would have been", () => {
      fc.assert(
        fc.property(
          anyRate,
          fc.array(fc.tuple(anyGap, fc.nat(20)), { maxLength: 40, size: "max" }),
          (rate, history) => {
            const [asked, left] = [make(rate, 20, 7), make(rate, 20, 7)]
            let now = 0
            for (const [gap, cost] of history) {
              now += gap
              if (TokenBucket.take(asked, cost, now)) TokenBucket.refund(asked, cost, now)
              expect(TokenBucket.level(asked, now)).toBeCloseTo(TokenBucket.level(left, now), 8)
            }
          }
        )
      )
    })

    it("reading the level changes nothing", () => {
      fc.assert(
        fc.property(anyRate, fc.array(anyGap, { maxLength: 50, size: "max" }), (rate, gaps) => {
          const [read, unread] = [make(rate, 1e6, 0), make(rate, 1e6, 0)]
          let now = 0
          for (const gap of gaps) TokenBucket.level(read, (now += gap))
          expect(TokenBucket.level(read, now)).toBe(TokenBucket.level(unread, now))
        })
      )
    })
  })
})
