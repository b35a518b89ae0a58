import { describe, expect, it } from "vitest"
import * as fc from "fast-check"
import * as RestartIntensity from "../../src/internal/restartIntensity.ts"

const restarts = (options: RestartIntensity.Options, instants: ReadonlyArray<number>) => {
  let state = RestartIntensity.make(options)
  return instants.map((now) => {
    const [allowed, next] = RestartIntensity.restart(state, now)
    state = next
    expect(state.restarts.length).toBeLessThanOrEqual(state.intensity)
    return allowed
  })
}

describe("restartIntensity", () => {
  it("allows three restarts in a minute and refuses the fourth, by default", () => {
    expect(restarts({}, [0, 1, 2, 3, 60_000, 60_001])).toEqual([true, true, true, false, false, true])
  })

  it("counts what is configured", () => {
    expect(restarts({ intensity: 1, periodMillis: 5000 }, [0, 5000, 5001])).toEqual([true, false, true])
  })

  it("never restarts with an intensity of 0", () => {
    expect(restarts({ intensity: 0 }, [0, 1e9])).toEqual([false, false])
  })

  it("does not count a restart that it refused", () => {
    expect(restarts({ intensity: 1, periodMillis: 10 }, [0, 5, 9, 11])).toEqual([true, false, false, true])
  })

  it("tells how many are left", () => {
    const [, once] = RestartIntensity.restart(RestartIntensity.make(), 0)
    expect(RestartIntensity.remaining(once, 60_000)).toBe(2)
    expect(RestartIntensity.remaining(once, 60_001)).toBe(3)
  })

  it("leaves the state it was given alone", () => {
    const state = RestartIntensity.make()
    RestartIntensity.restart(state, 0)
    expect(state.restarts).toEqual([])
  })

  it("is locked out for no longer than the period by a clock that steps back", () => {
    const hour = 3_600_000
    expect(restarts({ intensity: 1 }, [hour, 0, 60_000, 60_001])).toEqual([true, false, false, true])
  })

  it("allows no more than the intensity in any window of the period, and refuses only when it is used up", () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 0, max: 40 }), { maxLength: 100, size: "max" }),
        fc.integer({ min: 0, max: 5 }),
        fc.integer({ min: 1, max: 60 }),
        (gaps, intensity, periodMillis) => {
          let now = 0
          const instants = gaps.map((gap) => (now += gap))
          const allowed = restarts({ intensity, periodMillis }, instants)
          const done = instants.filter((_, index) => allowed[index])
          const within = (end: number) => done.filter((at) => at <= end && at >= end - periodMillis).length
          for (const at of done) expect(within(at)).toBeLessThanOrEqual(intensity)
          for (const [index, at] of instants.entries()) {
            if (!allowed[index]) expect(within(at)).toBe(intensity)
          }
        }
      )
    )
  })

  it("names module, option and value of a bad configuration", () => {
    expect(() => RestartIntensity.make({ intensity: -1 })).toThrow(
      new RangeError("restartIntensity.make: intensity must be an integer from 0 to 10000, got -1")
    )
    for (const intensity of [Number.NaN, 1.5, 10_001]) {
      expect(() => RestartIntensity.make({ intensity })).toThrow("intensity must be an integer")
    }
    for (const periodMillis of [Number.NaN, 0, Infinity]) {
      expect(() => RestartIntensity.make({ periodMillis })).toThrow("periodMillis must be a finite number > 0")
    }
    expect(() => RestartIntensity.restart(RestartIntensity.make(), Number.NaN)).toThrow("nowMillis must be a finite")
  })
})
