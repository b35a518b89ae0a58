/** What a calibration finds of providers whose capacity is known, what it costs at most, and when it stops. */
import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Fiber, Semaphore } from "effect"
import { TestClock } from "effect/testing"
import * as Calibration from "espalier/Calibration"
import * as Fault from "espalier/Fault"

interface Provider {
  readonly request: Effect.Effect<Calibration.Usage, Fault.Fault>
  inFlight: number
  maxInFlight: number
  started: number
  throttled: number
  /** Tokens of the calls that were answered. */
  used: number
}

/** A sequence of numbers in [0, 1) that is the same for the same seed. */
const randomly = (seed: number): (() => number) => {
  let state = (seed * 48_271) % 2_147_483_647
  return () => (state = (state * 48_271) % 2_147_483_647) / 2_147_483_647
}

/** Counts what goes through; `answer` decides how a call goes on, from how many others are in flight. */
const provider = (answer: (self: Provider) => Effect.Effect<Calibration.Usage, Fault.Fault>): Provider => {
  const self: Provider = {
    inFlight: 0,
    maxInFlight: 0,
    started: 0,
    throttled: 0,
    used: 0,
    request: Effect.suspend(() => {
      self.started++
      self.maxInFlight = Math.max(self.maxInFlight, ++self.inFlight)
      return answer(self).pipe(
        Effect.tap((usage) => Effect.sync(() => void (self.used += usage.tokens ?? 0))),
        Effect.ensuring(Effect.sync(() => void self.inFlight--))
      )
    })
  }
  return self
}

/** Answers so many at once, and lets the others wait where nobody sees them. */
const queueing = (capacity: number, millis: number, jitter = 0, seed = 1): Provider => {
  const slots = Semaphore.makeUnsafe(capacity)
  const random = randomly(seed)
  return provider(() =>
    Effect.suspend(() => Effect.sleep(millis * (1 + jitter * (2 * random() - 1)))).pipe(
      slots.withPermits(1),
      Effect.as({ tokens: 100 })
    )
  )
}

const overloaded = (retryAfterMillis?: number): Fault.Fault =>
  new Fault.ModelOverloaded({
    dependency: "api",
    status: 429,
    ...(retryAfterMillis === undefined ? {} : { retryAfterMillis })
  })

/** Answers so many at once, and refuses the others. */
const refusing = (capacity: number, millis: number, retryAfterMillis?: number): Provider =>
  provider((self) => {
    if (self.inFlight <= capacity) return Effect.as(Effect.sleep(millis), { tokens: 100 })
    self.throttled++
    return Effect.fail(overloaded(retryAfterMillis))
  })

const plenty = { spend: { tokens: 10_000_000 }, bound: { tokens: 100 }, deadline: "2 hours" } as const

const calibrate = (
  { request }: Provider,
  options: Partial<Calibration.Options> = {}
): Effect.Effect<Calibration.Result> =>
  Effect.gen(function* () {
    const fiber = yield* Effect.forkChild(Calibration.run(request, { ...plenty, ...options }))
    yield* TestClock.adjust("2 hours")
    return yield* Fiber.join(fiber)
  })

const within = (value: number, expected: number, share: number, what: string): void =>
  assert.isAtMost(Math.abs(value / expected - 1), share, `${what}: ${value} is not ${expected} to ${100 * share} %`)

describe("decide", () => {
  const step = (concurrency: number, throughputPerSecond: number, more: Partial<Calibration.Step> = {}) => ({
    concurrency,
    completions: 30,
    throughputPerSecond,
    p50Millis: 100,
    meanMillis: 100,
    deviationMillis: 0,
    firstTokenMillis: undefined,
    throttledShare: 0,
    failedShare: 0,
    ...more
  })
  const decided = (steps: ReadonlyArray<Calibration.Step>, maxConcurrency = 100): string | number => {
    const decision = Calibration.decide(steps, { start: 4, maxConcurrency })
    return decision._tag === "Stop" ? decision.stoppedBy : decision.concurrency
  }
  const cases: ReadonlyArray<readonly [string, ReadonlyArray<Calibration.Step>, string | number]> = [
    ["the first step is start", [], 4],
    ["each step has half as many callers again", [step(8, 80)], 12],
    ["and at least one more", [step(1, 10)], 2],
    ["the last step ends at maxConcurrency", [step(80, 800)], 100],
    ["nothing is beyond maxConcurrency", [step(66, 660), step(100, 1_000)], "MaxConcurrency"],
    ["a gain of 5 % goes on", [step(8, 80), step(12, 84.1)], 18],
    ["less of a gain stops", [step(8, 80), step(12, 83.9)], "NoGain"],
    ["a smaller step has to bring less", [step(90, 900), step(100, 912)], "MaxConcurrency"],
    ["but not nothing", [step(90, 900), step(100, 908)], "NoGain"],
    ["1 % of throttles goes on", [step(8, 80, { throttledShare: 0.01 })], 12],
    ["more throttles stop, whatever the gain", [step(8, 80), step(12, 120, { throttledShare: 0.011 })], "Throttled"],
    ["throttles stop the first step", [step(8, 80, { throttledShare: 0.5 })], "Throttled"],
    ["10 % of failures go on", [step(8, 80, { failedShare: 0.1 })], 12],
    ["more failures stop", [step(8, 80, { failedShare: 0.11 })], "Failing"],
    ["1.49 times the latency goes on", [step(8, 80), step(12, 120, { p50Millis: 149 })], 18],
    ["1.5 times the latency stops", [step(8, 80), step(12, 120, { p50Millis: 150 })], "Latency"],
    [
      "where first tokens are told, they count and the latency does not",
      [step(8, 80, { firstTokenMillis: 10 }), step(12, 120, { firstTokenMillis: 14, p50Millis: 150 })],
      18
    ],
    [
      "a late first token stops, whatever the latency",
      [step(8, 80, { firstTokenMillis: 10 }), step(12, 120, { firstTokenMillis: 15 })],
      "Latency"
    ],
    [
      "latency is compared to that of most steps before, not to one that was quick by chance",
      [step(8, 80, { p50Millis: 60 }), step(12, 120), step(18, 180), step(27, 270)],
      41
    ]
  ]
  for (const [name, steps, expected] of cases) it(name, () => assert.strictEqual(decided(steps), expected))

  const conclude = (steps: ReadonlyArray<Calibration.Step>, stoppedBy: Calibration.StoppedBy, aloneMillis = 100) =>
    Calibration.conclude(steps, stoppedBy, { tokens: 0, microDollars: 0 }, { aloneMillis, tolerableDelayMillis: 5_000 })
  const calm = [step(8, 80), step(12, 120), step(18, 180)]

  it("the limit and the rate are 0.9 of the knee, the queue what the rate serves in the tolerable delay", () => {
    const result = conclude([...calm, step(27, 200, { p50Millis: 135, meanMillis: 135 })], "NoGain")
    assert.deepInclude(result, { kneeConcurrency: 20, limit: 18, ratePerSecond: 180, queue: 900 })
    assert.deepInclude(result, { confidence: "high", reason: "the knee was passed" })
    assert.approximately(result.littlesLawRatio, 1, 1e-9)
  })

  it("a hair that binary fractions lack costs no slot and no place in the queue", () => {
    const hair = 1 - 1e-12
    assert.deepInclude(conclude([step(20, 200 * hair)], "MaxConcurrency"), { limit: 18, queue: 900 })
  })

  it("a throttled step tells the rate, and is not what Little's law is checked on", () => {
    const throttled = step(12, 100, { throttledShare: 0.2, meanMillis: 60 })
    const result = conclude([step(8, 80), throttled], "Throttled")
    assert.deepInclude(result, { ratePerSecond: 90, confidence: "medium", littlesLawRatio: 1 })
  })

  it("the limit is 1 at least, and never beyond what was measured", () => {
    assert.strictEqual(conclude([step(1, 10), step(2, 10, { p50Millis: 200 })], "NoGain").limit, 1)
    assert.strictEqual(conclude([step(8, 120)], "MaxConcurrency").kneeConcurrency, 8)
  })

  it("confidence falls where callers, rate and latency do not agree", () => {
    const slower = (share: number) => conclude([step(8, 80 * share), step(12, 120 * share)], "NoGain")
    assert.deepInclude(slower(0.95), { confidence: "high" })
    assert.deepInclude(slower(0.85), { confidence: "medium", reason: "callers, rate and latency disagree by 15 %" })
    assert.deepInclude(slower(0.7), { confidence: "low", reason: "callers, rate and latency disagree by 30 %" })
  })

  it("confidence falls with how the run ended, and where latencies vary", () => {
    const confidences = (["Failing", "Spend", "Deadline", "Unpriced", "MaxConcurrency", "Throttled"] as const).map(
      (stoppedBy) => conclude(calm, stoppedBy).confidence
    )
    assert.deepStrictEqual(confidences, ["low", "low", "low", "low", "medium", "medium"])
    const varied = conclude([step(8, 80, { deviationMillis: 40 }), step(12, 120)], "NoGain")
    assert.deepInclude(varied, { confidence: "medium", reason: "latencies vary by 40 %; a second run would tell" })
    assert.include(conclude(calm, "Latency").reason, "their number still grew")
  })

  it("a start above the knee is noticed by the one call before it", () => {
    const steps = [step(8, 20, { p50Millis: 400, meanMillis: 400 }), step(12, 20, { p50Millis: 600, meanMillis: 600 })]
    const result = conclude(steps, "NoGain", 100)
    assert.deepInclude(result, { kneeConcurrency: 2, limit: 1, confidence: "medium" })
    assert.include(result.reason, "start was above the knee")
  })

  it("one call that was quick by chance says nothing against a start at 1", () => {
    assert.deepInclude(conclude([step(1, 10), step(2, 20)], "NoGain", 20), { kneeConcurrency: 2, confidence: "high" })
  })
})

describe("run", () => {
  it.effect("finds the knee of a provider that queues, to 10 %, and says so", () =>
    Effect.gen(function* () {
      for (const capacity of [8, 13, 20, 34, 50]) {
        for (const seed of [1, 2, 3]) {
          const result = yield* calibrate(queueing(capacity, 400, 0.2, seed))
          const what = `capacity ${capacity}, seed ${seed}`
          within(result.kneeConcurrency, capacity, 0.1, what)
          within(result.ratePerSecond, (0.9 * capacity) / 0.4, 0.1, `rate, ${what}`)
          within(result.littlesLawRatio, 1, 0.1, `Little's law, ${what}`)
          assert.isAtMost(result.limit, capacity, what)
          assert.isAtLeast(result.limit, 0.75 * capacity, what)
          assert.include(["NoGain", "Latency"], result.stoppedBy, what)
          assert.strictEqual(result.confidence, "high", `${what}: ${result.reason}`)
        }
      }
    })
  )

  it.effect("finds the knee of a provider whose answers all take the same time", () =>
    Effect.gen(function* () {
      for (const capacity of [1, 8, 20, 26]) {
        within((yield* calibrate(queueing(capacity, 400))).kneeConcurrency, capacity, 0.1, `capacity ${capacity}`)
      }
    })
  )

  it.effect("each step ends 30 calls, two rounds of its callers and two latencies at least", () =>
    Effect.gen(function* () {
      const slow = queueing(30, 1_000)
      const { steps } = yield* calibrate(slow)
      assert.deepStrictEqual(
        steps.slice(0, 7).map(({ concurrency }) => concurrency),
        [1, 2, 3, 5, 8, 12, 18]
      )
      for (const { completions, concurrency } of steps) {
        assert.isAtLeast(completions, Math.max(30, 2 * concurrency))
        assert.isAtMost(completions, Math.max(30 + concurrency, 5 * concurrency))
      }
      const [first] = steps
      assert.deepInclude(first, { completions: 30, p50Millis: 1_000 })
      within(first!.throughputPerSecond, 1, 1e-9, "one caller, one call a second")
    })
  )

  it.effect("a step lasts two latencies, although enough calls have ended before", () =>
    Effect.gen(function* () {
      // Those that began just before the second step, and the first of those that it adds, end at once.
      const hasty = provider(() =>
        Effect.flatMap(Clock.currentTimeMillis, (now) =>
          Effect.as(Effect.sleep(now === 3_000 ? 100 : now === 3_020 ? 10 : 1_000), { tokens: 100 })
        )
      )
      const fiber = yield* Effect.forkChild(Calibration.run(hasty.request, { ...plenty, start: 20 }))
      yield* TestClock.adjust(3_030)
      assert.strictEqual(hasty.inFlight, 30)
      yield* TestClock.adjust(1_500)
      // 20 + 10 that were hasty, and 30 of a second: two rounds of 30, in half of the time.
      assert.strictEqual(hasty.started - hasty.inFlight, 1 + 40 + 60)
      assert.strictEqual(hasty.maxInFlight, 30)
      yield* TestClock.adjust(1_500)
      assert.isAbove(hasty.maxInFlight, 30)
      yield* Fiber.interrupt(fiber)
    })
  )

  const uneven = (one: number, longer: number): Provider =>
    provider((self) => Effect.as(Effect.sleep(self.started % one === 0 ? 400 * longer : 400), { tokens: 100 }))

  it.effect("where latencies vary, a step goes on until their mean is right to 10 %", () =>
    Effect.gen(function* () {
      const { steps } = yield* calibrate(uneven(5, 10), { maxConcurrency: 1 })
      assert.isAbove(steps[0]!.completions, 100)
      assert.isAtMost(steps[0]!.deviationMillis / steps[0]!.meanMillis / Math.sqrt(steps[0]!.completions), 0.1)
    })
  )

  it.effect("or until 210 calls have ended", () =>
    Effect.gen(function* () {
      const { steps } = yield* calibrate(uneven(20, 100), { maxConcurrency: 1 })
      assert.strictEqual(steps[0]!.completions, 210)
    })
  )

  it.effect("ends although a request takes no time at all", () =>
    Effect.gen(function* () {
      const instant = provider(() => Effect.succeed({ tokens: 1 }))
      // Nobody moves the clock.
      const result = yield* Calibration.run(instant.request, { ...plenty, bound: { tokens: 1 }, maxConcurrency: 1 })
      assert.strictEqual(result.steps[0]!.completions, 100_000)
    })
  )

  it.effect("never has more calls under way than maxConcurrency, and stops there", () =>
    Effect.gen(function* () {
      const wide = queueing(1_000, 400)
      const result = yield* calibrate(wide, { maxConcurrency: 20 })
      assert.deepInclude(result, { stoppedBy: "MaxConcurrency", confidence: "medium", limit: 18 })
      assert.strictEqual(wide.maxInFlight, 20)
    })
  )

  it.effect("begins at start, after one call alone", () =>
    Effect.gen(function* () {
      const wide = queueing(1_000, 400)
      const fiber = yield* Effect.forkChild(Calibration.run(wide.request, { ...plenty, start: 6 }))
      yield* TestClock.adjust(399)
      assert.strictEqual(wide.started, 1)
      yield* TestClock.adjust(2)
      assert.strictEqual(wide.inFlight, 6)
      yield* Fiber.interrupt(fiber)
    })
  )

  describe("a provider that throttles", () => {
    it.effect("above so many at once: the limit stays below it, and is not far from it", () =>
      Effect.gen(function* () {
        for (const capacity of [10, 20, 40]) {
          const result = yield* calibrate(refusing(capacity, 400))
          assert.deepInclude(result, { stoppedBy: "Throttled", confidence: "medium" })
          assert.isAtMost(result.limit, capacity)
          within(result.kneeConcurrency, capacity, 0.15, `capacity ${capacity}`)
        }
      })
    )

    it.effect("is not called again by a throttled caller before it asked to be", () =>
      Effect.gen(function* () {
        const strict = refusing(10, 400, 60_000)
        const result = yield* calibrate(strict)
        assert.strictEqual(result.stoppedBy, "Throttled")
        // Twelve callers, two too many: each of them is refused once, and keeps away.
        assert.strictEqual(strict.throttled, 2)
        assert.strictEqual(result.steps.at(-1)!.concurrency, 12)
      })
    )

    it.effect("at once and always: it ends, and says that nothing was answered", () =>
      Effect.gen(function* () {
        const shut = refusing(0, 400, 1_000)
        const result = yield* calibrate(shut)
        assert.deepInclude(result, { stoppedBy: "Throttled", confidence: "low", limit: 1, ratePerSecond: 0 })
        assert.deepStrictEqual(result.spent, { tokens: 0, microDollars: 0 })
        assert.strictEqual(shut.started, 2)
      })
    )
  })

  describe("a provider that gets slower", () => {
    it.effect("with every call beyond its capacity: the knee is where it begins to", () =>
      Effect.gen(function* () {
        const shared = provider((self) =>
          Effect.as(Effect.sleep(400 * Math.max(1, self.inFlight / 12)), { tokens: 100 })
        )
        const result = yield* calibrate(shared)
        assert.include(["NoGain", "Latency"], result.stoppedBy)
        within(result.kneeConcurrency, 12, 0.1, "knee")
      })
    )

    it.effect("with its first tokens only: it is stopped although answers still become more", () =>
      Effect.gen(function* () {
        const streaming = provider((self) => {
          const firstTokenMillis = 100 * Math.max(1, self.inFlight / 12)
          return Effect.as(Effect.sleep(5_000 + firstTokenMillis), { tokens: 100, firstTokenMillis })
        })
        const result = yield* calibrate(streaming)
        assert.deepInclude(result, { stoppedBy: "Latency", confidence: "medium" })
        assert.strictEqual(result.steps.at(-1)!.concurrency, 18)
        assert.isAbove(result.steps.at(-1)!.throughputPerSecond, 1.3 * result.steps.at(-2)!.throughputPerSecond)
      })
    )
  })

  describe("the spend cap", () => {
    const random = randomly(7)
    const dear = (most: number): Provider =>
      provider(() => Effect.suspend(() => Effect.as(Effect.sleep(400), { tokens: 1 + Math.floor(most * random()) })))

    it.effect("is never exceeded where a bound is given, whatever the calls cost, and what was spent is exact", () =>
      Effect.gen(function* () {
        for (const tokens of [99, 100, 1_000, 5_432, 20_000]) {
          const costly = dear(100)
          const result = yield* calibrate(costly, { spend: { tokens }, bound: { tokens: 100 } })
          assert.isAtMost(costly.used, tokens)
          assert.deepStrictEqual(result.spent, { tokens: costly.used, microDollars: 0 })
          assert.deepInclude(result, { stoppedBy: "Spend", confidence: "low" })
          // It stops for nothing else: not even the dearest call would have fitted.
          assert.isAbove(costly.used, tokens - 100 - 100 * costly.maxInFlight)
        }
      })
    )

    it.effect("leaves what was measured of a first step that was cut short", () =>
      Effect.gen(function* () {
        const { ratePerSecond, steps } = yield* calibrate(queueing(50, 400), { spend: { tokens: 1_000 } })
        assert.deepStrictEqual(
          steps.map(({ completions }) => completions),
          [9]
        )
        within(ratePerSecond, 0.9 * 2.5, 1e-9, "rate")
      })
    )

    it.effect("is kept by what calls have cost so far where no bound is given", () =>
      Effect.gen(function* () {
        const even = queueing(50, 400)
        const result = yield* Effect.gen(function* () {
          const fiber = yield* Effect.forkChild(Calibration.run(even.request, { spend: { tokens: 10_050 } }))
          yield* TestClock.adjust("2 hours")
          return yield* Fiber.join(fiber)
        })
        assert.deepInclude(result, { stoppedBy: "Spend", spent: { tokens: 10_000, microDollars: 0 } })
        assert.strictEqual(even.used, 10_000)
      })
    )

    it.effect("counts money too, and the first unit to run out stops", () =>
      Effect.gen(function* () {
        const both = provider(() => Effect.as(Effect.sleep(400), { tokens: 10, microDollars: 300 }))
        const result = yield* calibrate(both, {
          spend: { tokens: 1_000_000, microDollars: 30_000 },
          bound: { tokens: 10, microDollars: 300 }
        })
        assert.deepInclude(result, { stoppedBy: "Spend", spent: { tokens: 1_000, microDollars: 30_000 } })
      })
    )

    it.effect("of 0 lets no call start", () =>
      Effect.gen(function* () {
        const even = queueing(50, 400)
        const fiber = yield* Effect.forkChild(Calibration.run(even.request, { spend: { tokens: 0 } }))
        yield* TestClock.adjust("1 second")
        const result = yield* Fiber.join(fiber)
        assert.deepInclude(result, { stoppedBy: "Spend", confidence: "low", limit: 1, steps: [] })
        assert.strictEqual(even.started, 0)
      })
    )

    it.effect("charges a failed call at its bound, and a throttled one nothing", () =>
      Effect.gen(function* () {
        const failing = provider(() => Effect.andThen(Effect.sleep(400), Effect.fail(Fault.disconnected("api"))))
        const failed = yield* calibrate(failing, { bound: { tokens: 70 } })
        assert.deepInclude(failed, {
          stoppedBy: "Failing",
          confidence: "low",
          spent: { tokens: 31 * 70, microDollars: 0 }
        })
      })
    )

    it.effect("of a unit that nobody tells stops after one call", () =>
      Effect.gen(function* () {
        const silent = provider(() => Effect.as(Effect.sleep(400), { tokens: 10 }))
        const fiber = yield* Effect.forkChild(Calibration.run(silent.request, { spend: { microDollars: 1_000 } }))
        yield* TestClock.adjust("1 second")
        assert.deepInclude(yield* Fiber.join(fiber), { stoppedBy: "Unpriced", confidence: "low" })
        assert.strictEqual(silent.started, 1)
      })
    )

    it.effect("charges what is no amount at the bound", () =>
      Effect.gen(function* () {
        for (const tokens of [NaN, -5, 1.5, Infinity]) {
          const odd = provider(() => Effect.as(Effect.sleep(400), { tokens }))
          const result = yield* calibrate(odd, { spend: { tokens: 1_000 }, bound: { tokens: 100 } })
          assert.deepInclude(result, { stoppedBy: "Spend", spent: { tokens: 1_000, microDollars: 0 } })
          assert.strictEqual(odd.started, 10)
        }
      })
    )
  })

  describe("its end", () => {
    it.effect("comes at the deadline: calls that hang are cut off and charged, and none is left", () =>
      Effect.gen(function* () {
        const hanging = provider((self) =>
          self.started <= 1 ? Effect.as(Effect.sleep(400), { tokens: 100 }) : Effect.never
        )
        const fiber = yield* Effect.forkChild(
          Calibration.run(hanging.request, { ...plenty, start: 5, deadline: "30 seconds" })
        )
        yield* TestClock.adjust(29_999)
        assert.isUndefined(fiber.pollUnsafe())
        assert.strictEqual(hanging.inFlight, 5)
        yield* TestClock.adjust(1)
        const result = yield* Fiber.join(fiber)
        assert.deepInclude(result, {
          stoppedBy: "Deadline",
          confidence: "low",
          spent: { tokens: 600, microDollars: 0 }
        })
        assert.strictEqual(hanging.inFlight, 0)
      })
    )

    it.effect("keeps what was measured until the deadline", () =>
      Effect.gen(function* () {
        const result = yield* calibrate(queueing(50, 400), { deadline: "21 seconds" })
        assert.strictEqual(result.stoppedBy, "Deadline")
        assert.deepStrictEqual(
          result.steps.map(({ concurrency }) => concurrency),
          [1, 2]
        )
        within(result.ratePerSecond, 0.9 * 5, 0.01, "rate of two callers")
      })
    )

    it.effect("lets calls under way end: they are answered, and counted in what was spent", () =>
      Effect.gen(function* () {
        const even = queueing(10, 400, 0.2)
        const result = yield* calibrate(even)
        assert.strictEqual(even.inFlight, 0)
        assert.strictEqual(even.used, 100 * even.started)
        assert.deepStrictEqual(result.spent, { tokens: even.used, microDollars: 0 })
      })
    )

    it.effect("comes with an interruption too, and leaves no call behind", () =>
      Effect.gen(function* () {
        const even = queueing(10, 400)
        const fiber = yield* Effect.forkChild(Calibration.run(even.request, { ...plenty, start: 8 }))
        yield* TestClock.adjust("1 second")
        assert.strictEqual(even.inFlight, 8)
        yield* Fiber.interrupt(fiber)
        assert.strictEqual(even.inFlight, 0)
      })
    )

    it.effect("comes for a request with a defect", () =>
      Effect.gen(function* () {
        const broken = provider(() => Effect.andThen(Effect.sleep(10), Effect.die(new TypeError("no such function"))))
        assert.strictEqual((yield* calibrate(broken)).stoppedBy, "Failing")
      })
    )
  })

  describe("options", () => {
    const bad: ReadonlyArray<readonly [Partial<Calibration.Options>, string]> = [
      [{ start: 0 }, "Calibration.run: start must be an integer from 1 to 100, got 0"],
      [{ start: 9, maxConcurrency: 8 }, "Calibration.run: start must be an integer from 1 to 8, got 9"],
      [{ maxConcurrency: 1.5 }, "Calibration.run: maxConcurrency must be an integer from 1 to 10000, got 1.5"],
      [{ maxConcurrency: 10_001 }, "Calibration.run: maxConcurrency must be an integer from 1 to 10000, got 10001"],
      [{ spend: { tokens: -1 } }, "Calibration.run: spend: tokens must be an integer >= 0, got -1"],
      [{ bound: { microDollars: NaN } }, "Calibration.run: bound: microDollars must be an integer >= 0, got NaN"],
      [{ deadline: 0 }, "Calibration.run: deadline in ms must be a number from 1 to 86400000, got 0"],
      [{ deadline: "2 days" }, "Calibration.run: deadline in ms must be a number from 1 to 86400000, got 172800000"],
      [
        { tolerableDelay: "Infinity" },
        "Calibration.run: tolerableDelay in ms must be a number from 0 to 86400000, got Infinity"
      ]
    ]
    for (const [options, message] of bad) {
      it(message, () => {
        assert.throws(() => Calibration.run(queueing(1, 1).request, { ...plenty, ...options }), RangeError, message)
      })
    }
  })
})

describe("format", () => {
  it.effect("says what to configure, how sure it is, and why", () =>
    Effect.gen(function* () {
      const text = Calibration.format(
        yield* calibrate(queueing(1_000, 500), { maxConcurrency: 2, tolerableDelay: "5 seconds" })
      )
      assert.deepStrictEqual(text.split("\n"), [
        "limit 1 calls at once, 3.60 a second, 18 may wait",
        "confidence medium: the knee lies above maxConcurrency",
        "Little's law: rate x latency is 1.00 of the callers",
        "stopped by MaxConcurrency after 2 steps, 6300 tokens and 0 micro-dollars",
        "    callers      calls per second     p50 ms  throttled",
        "          1         30       2.00        500      0.0 %",
        "          2         30       4.00        500      0.0 %"
      ])
    })
  )
})
