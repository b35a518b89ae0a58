import { describe, expect, it } from "vitest"
import * as fc from "fast-check"
import * as Breaker from "../../src/internal/breakerState.ts"

/** A breaker with the bookkeeping of a caller around it. */
const harness = (options: Breaker.Options = {}) => {
  const test = {
    state: Breaker.make(options),
    transitions: [] as Array<Breaker.Transition>,
    ask(now: number, leaseMillis?: number) {
      const [decision, next] = Breaker.admit(test.state, now, leaseMillis)
      test.state = next
      return decision
    },
    admitted(now: number, leaseMillis?: number) {
      const decision = test.ask(now, leaseMillis)
      if (decision._tag === "Refused") throw new Error(`refused, retry after ${decision.retryAfterMillis}`)
      return decision
    },
    record(ticket: Breaker.Admitted, outcome: Breaker.Outcome, now: number) {
      const [transition, next] = Breaker.record(test.state, ticket, outcome, now)
      test.state = next
      if (transition !== undefined) test.transitions.push(transition)
      return transition
    },
    run(outcomes: ReadonlyArray<Breaker.Outcome>, now: number) {
      for (const outcome of outcomes) test.record(test.admitted(now), outcome, now)
    }
  }
  return test
}

const times = (count: number, outcome: Breaker.Outcome) => Array<Breaker.Outcome>(count).fill(outcome)

/** Opened at 0 by one failure, for a second. */
const opened = (options: Breaker.Options = {}) => {
  const breaker = harness({ policy: { consecutive: 1 }, openMillis: 1000, ...options })
  breaker.run(["failure"], 0)
  expect(breaker.state._tag).toBe("Open")
  return breaker
}

describe("breakerState", () => {
  describe("opening", () => {
    it("opens after five consecutive failures by default, and a success in between starts the count over", () => {
      const breaker = harness()
      breaker.run([...times(4, "failure"), "success", ...times(4, "failure")], 0)
      expect(breaker.state._tag).toBe("Closed")
      breaker.run(["failure"], 0)
      expect(breaker.transitions).toEqual([{ from: "Closed", to: "Open", trips: 1 }])
    })

    it("opens after as many consecutive failures as configured", () => {
      const breaker = harness({ policy: { consecutive: 2 } })
      breaker.run(["failure"], 0)
      expect(breaker.state._tag).toBe("Closed")
      breaker.run(["failure"], 0)
      expect(breaker.state._tag).toBe("Open")
    })

    it("F7: stays closed until the minimum of results is there, then opens at the rate", () => {
      const policy = { rate: 0.5, windowMillis: 10_000, minimum: 10 }
      const breaker = harness({ policy })
      breaker.run(times(9, "failure"), 0)
      expect(breaker.state._tag).toBe("Closed")
      breaker.run(["success"], 0)
      expect(breaker.state._tag).toBe("Open")

      const healthy = harness({ policy })
      for (let round = 0; round < 20; round++) healthy.run(["success", "success", "failure"], round)
      expect(healthy.state._tag).toBe("Closed")

      const edge = harness({ policy })
      edge.run([...times(5, "success"), ...times(4, "failure")], 0)
      expect(edge.state._tag).toBe("Closed")
      edge.run(["failure"], 0)
      expect(edge.state._tag).toBe("Open")
    })

    it("F6: the window expires while nothing happens", () => {
      const breaker = harness({ policy: { rate: 0.2, windowMillis: 5000, minimum: 5 } })
      breaker.run(times(4, "failure"), 0)
      breaker.run(["failure"], 300_000)
      expect(breaker.state._tag).toBe("Closed")
      breaker.run(times(3, "failure"), 300_001)
      expect(breaker.state._tag).toBe("Closed")
      breaker.run(["failure"], 300_002)
      expect(breaker.state._tag).toBe("Open")
    })

    it("the window moves by tenths: a failure counts for nine tenths of it and not for more than all of it", () => {
      const after = (now: number) => {
        const breaker = harness({ policy: { rate: 1, windowMillis: 1000, minimum: 2 } })
        breaker.run(["failure"], 99)
        breaker.run(["failure"], now)
        return breaker.state._tag
      }
      expect([after(500), after(999), after(1000), after(1099), after(2099)]).toEqual([
        "Open",
        "Open",
        "Closed",
        "Closed",
        "Closed"
      ])
    })

    it("F8, F10, F11: outcomes that say nothing of health do not count, nor do they start the count over", () => {
      for (const policy of [{ consecutive: 3 }, { rate: 0.5, windowMillis: 1000, minimum: 3 }]) {
        const breaker = harness({ policy })
        breaker.run(times(50, "ignored"), 0)
        expect(breaker.state).toEqual(Breaker.make({ policy }))
        breaker.run(["failure", "failure", "ignored", "failure"], 0)
        expect(breaker.state._tag).toBe("Open")
      }
    })
  })

  describe("while open", () => {
    it("refuses and says when to come back, then admits one probe", () => {
      const breaker = opened()
      expect(breaker.ask(1)).toEqual({ _tag: "Refused", retryAfterMillis: 999 })
      expect(breaker.ask(999.5)).toEqual({ _tag: "Refused", retryAfterMillis: 0.5 })
      expect(breaker.ask(1000)).toMatchObject({ _tag: "Admitted", probe: true })
      expect(breaker.state._tag).toBe("HalfOpen")
    })

    it("stays open for thirty seconds by default", () => {
      const breaker = harness()
      breaker.run(times(5, "failure"), 0)
      expect(breaker.ask(0)).toEqual({ _tag: "Refused", retryAfterMillis: 30_000 })
    })

    it("stays open for as long as the caller's schedule says, counted from when it opened", () => {
      const breaker = opened()
      breaker.state = Breaker.openFor(breaker.state, 2500)
      expect(breaker.ask(500)).toEqual({ _tag: "Refused", retryAfterMillis: 2000 })
    })

    it("counts how often it has opened in a row, for the schedule, and starts over when it closes", () => {
      const breaker = opened()
      breaker.record(breaker.admitted(1000), "failure", 1000)
      breaker.record(breaker.admitted(2000), "failure", 2000)
      breaker.record(breaker.admitted(3000), "success", 3000)
      breaker.run(["failure"], 3001)
      expect(breaker.transitions.map(({ to, trips }) => [to, trips])).toEqual([
        ["Open", 1],
        ["Open", 2],
        ["Open", 3],
        ["Closed", 0],
        ["Open", 1]
      ])
    })

    it("F32: a clock that steps back lengthens neither the open time nor a lease", () => {
      const hour = 3_600_000
      const breaker = harness({ policy: { consecutive: 1 }, openMillis: 50 })
      breaker.run(["failure"], hour)
      expect(breaker.ask(0)).toEqual({ _tag: "Refused", retryAfterMillis: 50 })
      expect(breaker.ask(50)._tag).toBe("Admitted")

      const probing = opened({ probeLeaseMillis: 70 })
      probing.admitted(hour)
      expect(probing.ask(0)).toEqual({ _tag: "Refused", retryAfterMillis: 70 })
      expect(probing.ask(70)._tag).toBe("Admitted")
    })
  })

  describe("probing", () => {
    it("F1: of a hundred callers one is admitted, and each of the others is told when to come back", () => {
      const breaker = opened({ probeLeaseMillis: 30_000 })
      const decisions = [...Array(100).keys()].map(() => breaker.ask(1000))
      expect(decisions.filter((decision) => decision._tag === "Admitted")).toHaveLength(1)
      for (const refused of decisions.slice(1)) expect(refused).toEqual({ _tag: "Refused", retryAfterMillis: 30_000 })
    })

    it("F2, F3, F13: a probe that says nothing of health frees its slot, and decides nothing", () => {
      const breaker = opened()
      for (let round = 0; round < 3; round++) {
        const probe = breaker.admitted(1000)
        expect(breaker.ask(1000)._tag).toBe("Refused")
        expect(breaker.record(probe, "ignored", 1001)).toBeUndefined()
        expect(breaker.state._tag).toBe("HalfOpen")
      }
      expect(breaker.record(breaker.admitted(1002), "success", 1002)?.to).toBe("Closed")
    })

    it("F2: a probe that never settles loses its lease; one new probe is admitted, and the old result is nothing", () => {
      for (const outcome of ["success", "failure", "ignored"] as const) {
        const breaker = opened({ probeLeaseMillis: 500 })
        const hung = breaker.admitted(1000)
        expect(breaker.ask(1499)).toEqual({ _tag: "Refused", retryAfterMillis: 1 })
        const next = breaker.admitted(1500)
        expect(breaker.ask(1500)._tag).toBe("Refused")
        const before = breaker.state
        expect(breaker.record(hung, outcome, 1501)).toBeUndefined()
        expect(breaker.state).toBe(before)
        expect(breaker.record(next, "success", 1502)?.to).toBe("Closed")
      }
    })

    it("a result after the lease is nothing even before there is a new probe", () => {
      const breaker = opened({ probeLeaseMillis: 500 })
      const hung = breaker.admitted(1000)
      expect(breaker.record(hung, "success", 1500)).toBeUndefined()
      expect(breaker.state._tag).toBe("HalfOpen")
      expect(breaker.ask(1500)._tag).toBe("Admitted")
    })

    it("the lease of a probe can be as short as its deadline", () => {
      const breaker = opened()
      breaker.admitted(1000, 20)
      expect(breaker.ask(1000)).toEqual({ _tag: "Refused", retryAfterMillis: 20 })
      const other = opened()
      other.admitted(1000)
      expect(other.ask(1000)).toEqual({ _tag: "Refused", retryAfterMillis: 30_000 })
    })

    it("a probe settled twice counts once", () => {
      const breaker = opened()
      const probe = breaker.admitted(1000)
      breaker.record(probe, "ignored", 1000)
      breaker.record(probe, "success", 1000)
      expect(breaker.state._tag).toBe("HalfOpen")
    })
  })

  describe("late results", () => {
    it("F4: a call that began before the breaker opened changes nothing, in whatever state it comes back", () => {
      for (const outcome of ["success", "failure"] as const) {
        const breaker = harness({ policy: { consecutive: 2 }, openMillis: 1000 })
        const slow = [...Array(4).keys()].map(() => breaker.admitted(0))
        breaker.run(times(2, "failure"), 1)
        breaker.record(slow[0]!, outcome, 2)
        expect(breaker.state._tag).toBe("Open")
        const probe = breaker.admitted(1001)
        breaker.record(slow[1]!, outcome, 1002)
        expect(breaker.state._tag).toBe("HalfOpen")
        breaker.record(probe, "success", 1003)
        breaker.record(slow[2]!, outcome, 1004)
        breaker.record(slow[3]!, outcome, 1005)
        expect(breaker.state._tag).toBe("Closed")
        expect(breaker.transitions.map(({ to }) => to)).toEqual(["Open", "Closed"])
      }
    })
  })

  describe("allowance", () => {
    it("F12: after closing it doubles each step up to the limit, never all at once", () => {
      const breaker = opened({ rampStepMillis: 100 })
      expect(Breaker.allowance(breaker.state, 500, 500)).toBe(0)
      const probe = breaker.admitted(1000)
      expect(Breaker.allowance(breaker.state, 1000, 500)).toBe(1)
      breaker.record(probe, "success", 2000)
      const allowances = [2000, 2099, 2100, 2200, 2300, 2799, 2800, 2900, 3000, 1e9].map((now) =>
        Breaker.allowance(breaker.state, now, 500)
      )
      expect(allowances).toEqual([1, 1, 2, 4, 8, 128, 256, 500, 500, 500])
    })

    it("doubles every second by default", () => {
      const breaker = opened()
      breaker.record(breaker.admitted(1000), "success", 1000)
      expect([1999, 2000].map((now) => Breaker.allowance(breaker.state, now, 9))).toEqual([1, 2])
    })

    it("is the whole limit of a breaker that was never open", () => {
      expect(Breaker.allowance(Breaker.make(), 0, 64)).toBe(64)
    })

    it("never exceeds the limit", () => {
      const breaker = opened()
      breaker.admitted(1000)
      expect(Breaker.allowance(breaker.state, 1000, 0)).toBe(0)
    })
  })

  describe("by hand", () => {
    it("held open it refuses until the instant, whatever comes back, and then probes", () => {
      const breaker = harness()
      const running = breaker.admitted(0)
      breaker.state = Breaker.openFor(Breaker.forceOpen(breaker.state, 0, 5000), 1)
      breaker.record(running, "success", 1)
      expect(breaker.ask(1)).toEqual({ _tag: "Refused", retryAfterMillis: 4999 })
      expect(breaker.ask(5000)).toMatchObject({ probe: true })
    })

    it("held open without an end it stays open until it is reset", () => {
      const breaker = harness()
      breaker.state = Breaker.forceOpen(breaker.state, 0)
      expect(breaker.ask(1e12)).toEqual({ _tag: "Refused", retryAfterMillis: Infinity })
      breaker.state = Breaker.reset(breaker.state, 1e12)
      expect(breaker.ask(1e12)).toMatchObject({ _tag: "Admitted", probe: false })
      expect(Breaker.allowance(breaker.state, 1e12, 64)).toBe(1)
    })

    it("held closed it counts nothing until the instant, and then begins to", () => {
      const breaker = opened()
      breaker.state = Breaker.forceClosed(breaker.state, 10, 5000)
      breaker.run(times(20, "failure"), 4999)
      expect(breaker.state._tag).toBe("Closed")
      breaker.run(["failure"], 5000)
      expect(breaker.state._tag).toBe("Open")
    })

    it("held closed without an end it stays closed until it is reset", () => {
      const breaker = harness({ policy: { consecutive: 1 } })
      breaker.state = Breaker.forceClosed(breaker.state, 0)
      breaker.run(times(20, "failure"), 1e12)
      expect(Breaker.allowance(breaker.state, 0, 64)).toBe(64)
      breaker.state = Breaker.reset(breaker.state, 1e12)
      breaker.run(["failure"], 1e12)
      expect(breaker.state._tag).toBe("Open")
    })

    it("a reset forgets failures and makes the results of before late ones", () => {
      const breaker = harness({ policy: { consecutive: 2 } })
      const slow = breaker.admitted(0)
      breaker.run(["failure"], 0)
      breaker.state = Breaker.reset(breaker.state, 0)
      breaker.record(slow, "failure", 0)
      breaker.run(["failure"], 0)
      expect(breaker.state._tag).toBe("Closed")
    })
  })

  describe("through any history", () => {
    const step = fc.record({
      gap: fc.constantFrom(0, 1, 30, 100, 400),
      act: fc.constantFrom("ask", "ask", "ask", "settle", "settle", "again"),
      pick: fc.nat(),
      outcome: fc.constantFrom<Breaker.Outcome>("success", "failure", "failure", "ignored")
    })
    const policies = fc.constantFrom<Breaker.Policy>(
      { consecutive: 1 },
      { consecutive: 3 },
      { rate: 0.5, windowMillis: 500, minimum: 3 }
    )

    it("at most one probe is live and unsettled, late results change nothing, and refusals say when", () => {
      fc.assert(
        fc.property(policies, fc.array(step, { maxLength: 200, size: "max" }), (policy, history) => {
          const breaker = harness({ policy, openMillis: 200, probeLeaseMillis: 300 })
          const running: Array<{ readonly ticket: Breaker.Admitted; readonly at: number }> = []
          const settled: Array<Breaker.Admitted> = []
          let now = 0
          for (const { act, gap, outcome, pick } of history) {
            now += gap
            const before = breaker.state
            if (act === "ask") {
              const decision = breaker.ask(now)
              if (decision._tag === "Admitted") {
                if (decision.probe) {
                  // Nobody else holds a lease that still runs.
                  const live = running.filter(({ at, ticket }) => ticket.probe && now < at + 300)
                  expect(live.filter(({ ticket }) => ticket.generation === before.generation)).toEqual([])
                  expect(breaker.state._tag).toBe("HalfOpen")
                } else {
                  expect(before._tag).toBe("Closed")
                }
                running.push({ ticket: decision, at: now })
              } else {
                expect(decision.retryAfterMillis).toBeGreaterThan(0)
                expect(decision.retryAfterMillis).toBeLessThanOrEqual(300)
                // Asking at that instant, and not before, would be answered by a probe.
                const at = now + decision.retryAfterMillis
                expect(Breaker.admit(breaker.state, at)[0]._tag).toBe("Admitted")
                expect(Breaker.admit(breaker.state, at - 0.5)[0]._tag).toBe("Refused")
              }
            } else if (act === "settle" && running.length > 0) {
              const [{ at, ticket }] = running.splice(pick % running.length, 1) as [(typeof running)[number]]
              const transition = breaker.record(ticket, outcome, now)
              const late = ticket.generation !== before.generation || (ticket.probe && now >= at + 300)
              if (late) expect(breaker.state).toBe(before)
              else if (ticket.probe)
                expect(transition?.to).toBe({ success: "Closed", failure: "Open", ignored: undefined }[outcome])
              if (transition !== undefined) expect(breaker.state.generation).toBe(before.generation + 1)
              expect(breaker.state._tag).toBe(transition?.to ?? before._tag)
              if (ticket.probe) settled.push(ticket)
            } else if (act === "again" && settled.length > 0) {
              // A probe that was settled already is late for good.
              breaker.record(settled[pick % settled.length]!, outcome, now)
              expect(breaker.state).toBe(before)
            }
            expect(breaker.state.generation).toBeGreaterThanOrEqual(before.generation)
          }
        }),
        { numRuns: 500 }
      )
    })

    it("opens by consecutive failures exactly when a plain count says so", () => {
      const outcomes = fc.array(fc.constantFrom<Breaker.Outcome>("success", "failure", "failure", "ignored"), {
        maxLength: 40,
        size: "max"
      })
      fc.assert(
        fc.property(fc.integer({ min: 1, max: 5 }), outcomes, (consecutive, history) => {
          const breaker = harness({ policy: { consecutive } })
          let count = 0
          for (const outcome of history) {
            breaker.run([outcome], 0)
            count = outcome === "ignored" ? count : outcome === "failure" ? count + 1 : 0
            expect(breaker.state._tag).toBe(count >= consecutive ? "Open" : "Closed")
            if (count >= consecutive) return
          }
        })
      )
    })

    it("opens by rate exactly when the results of the last ten tenths say so", () => {
      const steps = fc.array(fc.tuple(fc.integer({ min: 0, max: 40 }), fc.boolean()), { maxLength: 60, size: "max" })
      fc.assert(
        fc.property(steps, fc.constantFrom(0.2, 0.5, 1), fc.integer({ min: 1, max: 6 }), (history, rate, minimum) => {
          const breaker = harness({ policy: { rate, windowMillis: 100, minimum } })
          const results: Array<{ readonly tenth: number; readonly failure: boolean }> = []
          let now = -50
          for (const [gap, failure] of history) {
            now += gap
            breaker.run([failure ? "failure" : "success"], now)
            const tenth = Math.floor(now / 10)
            results.push({ tenth, failure })
            const window = results.filter((result) => result.tenth > tenth - 10)
            const failures = window.filter((result) => result.failure).length
            const tooMuch = window.length >= minimum && failures >= rate * window.length
            expect(breaker.state._tag).toBe(tooMuch ? "Open" : "Closed")
            if (tooMuch) return
          }
        }),
        { numRuns: 300 }
      )
    })
  })

  it("leaves the state it was given alone", () => {
    const frozen = <S extends Breaker.BreakerState>(state: S): S => {
      if (state._tag === "Closed") Object.freeze(state.window)
      return Object.freeze(state)
    }
    let state = frozen(Breaker.make({ policy: { rate: 1, windowMillis: 100, minimum: 2 } }))
    for (let now = 0; now < 3000; now += 50) {
      const [decision, next] = Breaker.admit(state, now)
      state = frozen(next)
      if (decision._tag === "Admitted") state = frozen(Breaker.record(state, decision, "failure", now)[1])
    }
    expect(state._tag).toBe("Open")
  })

  it("names module, option and value of a bad configuration", () => {
    const bad: Array<[Breaker.Options, string]> = [
      [{ policy: { consecutive: 0 } }, "policy.consecutive must be an integer >= 1, got 0"],
      [{ policy: { consecutive: Number.NaN } }, "policy.consecutive must be an integer >= 1, got NaN"],
      [{ policy: { rate: 0, windowMillis: 1, minimum: 1 } }, "policy.rate must be a number > 0 and <= 1, got 0"],
      [{ policy: { rate: 1.1, windowMillis: 1, minimum: 1 } }, "policy.rate must be"],
      [{ policy: { rate: 1, windowMillis: Infinity, minimum: 1 } }, "policy.windowMillis must be a finite number > 0"],
      [{ policy: { rate: 1, windowMillis: 1, minimum: 0.5 } }, "policy.minimum must be an integer >= 1, got 0.5"],
      [{ openMillis: 0 }, "breakerState.make: openMillis must be a finite number > 0, got 0"],
      [{ probeLeaseMillis: -1 }, "probeLeaseMillis must be"],
      [{ rampStepMillis: Number.NaN }, "rampStepMillis must be"]
    ]
    for (const [options, message] of bad) expect(() => Breaker.make(options)).toThrow(message)
    expect(() => Breaker.openFor(Breaker.make(), Number.NaN)).toThrow("breakerState.openFor: openMillis must be")
    expect(() => Breaker.forceOpen(Breaker.make(), 0, Number.NaN)).toThrow("untilMillis must be a number, got NaN")
    expect(() => Breaker.forceClosed(Breaker.make(), 0, Number.NaN)).toThrow("untilMillis must be a number")
    expect(() => Breaker.admit(opened().state, 0, 0)).toThrow("breakerState.admit: leaseMillis must be")
  })
})
