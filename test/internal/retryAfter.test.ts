import { describe, expect, it } from "vitest"
import * as fc from "fast-check"
import * as RetryAfter from "../../src/internal/retryAfter.ts"

const now = Date.UTC(2026, 9, 21, 7, 0, 0)
const hour = 3_600_000

const parse = (headers: Record<string, string>, at = now) => RetryAfter.parse((name) => headers[name], at)
const wait = (headers: Record<string, string>, at = now) => parse(headers, at).waitMillis
const retryAfter = (value: string, at = now) => wait({ "retry-after": value }, at)

describe("retryAfter", () => {
  it("F50: reads what makes sense and ignores what does not", () => {
    const cases: Array<[string, number | undefined]> = [
      ["120", 120_000],
      ["Wed, 21 Oct 2026 07:28:00 GMT", 28 * 60_000],
      ["-3", undefined],
      ["1.5", 1500],
      ["soon", undefined],
      ["Wed, 21 Oct 2015 07:28:00 GMT", 0],
      ["0", 0],
      [String(10 * 365 * 24 * 3600), hour],
      ["Wed, 21 Oct 2036 07:28:00 GMT", hour]
    ]
    for (const [value, expected] of cases) expect(retryAfter(value), value).toBe(expected)
  })

  it("ignores every other way to write a number", () => {
    for (const value of ["", " ", "1e3", "0x10", "+5", "1,5", "1.", ".5", "NaN", "Infinity", "5 s", "5s", "١٢"]) {
      expect(retryAfter(value), value).toBeUndefined()
    }
    expect(retryAfter(" 7 ")).toBe(7000)
    expect(retryAfter("9".repeat(400))).toBe(hour)
  })

  it("reads dates in all three forms of RFC 9110, and none that does not exist", () => {
    expect(retryAfter("Wednesday, 21-Oct-26 07:00:30 GMT")).toBe(30_000)
    expect(retryAfter("Wed Oct 21 07:00:30 2026")).toBe(30_000)
    expect(retryAfter("Sun Nov  1 00:00:00 2026")).toBe(hour)
    expect(retryAfter("Thursday, 21-Oct-99 07:00:30 GMT")).toBe(0)
    const none = ["Wed, 31 Feb 2027 07:28:00 GMT", "Wed, 21 Foo 2026 07:28:00 GMT", "Wed, 21 Oct 2026 24:28:00 GMT"]
    const other = ["2026-10-21", "21 Oct 2026", "Wed, 21 Oct 2026 07:28:00", "Wed, 21 Oct 2026 07:28:00 PST"]
    for (const value of [...none, ...other]) expect(retryAfter(value), value).toBeUndefined()
  })

  it("reads two-digit years as at most fifty years ahead", () => {
    const at1990 = Date.UTC(1990, 0, 1)
    expect(retryAfter("Monday, 01-Jan-90 00:00:05 GMT", at1990)).toBe(5000)
    expect(retryAfter("Friday, 01-Jan-77 00:00:05 GMT", Date.UTC(2026, 0, 1))).toBe(0)
    expect(retryAfter("Friday, 01-Jan-76 00:00:05 GMT", Date.UTC(2026, 0, 1))).toBe(hour)
  })

  it("prefers milliseconds over seconds, and what can be read over what cannot", () => {
    expect(wait({ "retry-after-ms": "1250.5", "retry-after": "7" })).toBe(1250.5)
    expect(wait({ "retry-after-ms": "-1", "retry-after": "7" })).toBe(7000)
    expect(wait({ "retry-after": "soon", "x-ratelimit-reset-requests": "2s" })).toBe(2000)
    expect(wait({ "retry-after": "3", "x-ratelimit-reset-requests": "2s" })).toBe(3000)
    expect(wait({ "retry-after-ms": String(2 * hour) })).toBe(hour)
  })

  it("reads durations as Go prints them", () => {
    const cases: Array<[string, number | undefined]> = [
      ["6m0s", 360_000],
      ["1.5s", 1500],
      ["20ms", 20],
      ["2m59.56s", 179_560],
      ["1h", hour],
      ["100h", hour],
      ["500us", 0.5],
      ["500µs", 0.5],
      ["1000000ns", 1],
      ["0s", 0],
      ["30", 30_000],
      ["-5s", undefined],
      ["5 s", undefined],
      ["s", undefined],
      ["5s later", undefined]
    ]
    for (const [value, expected] of cases) {
      expect(wait({ "x-ratelimit-reset-tokens": value }), value).toBe(expected)
    }
  })

  it("waits for the latest reset of the limits that are used up, and for no other", () => {
    const requests = { "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "4s" }
    const tokens = { "x-ratelimit-remaining-tokens": "12", "x-ratelimit-reset-tokens": "9s" }
    expect(wait({ ...requests, ...tokens })).toBe(4000)
    expect(wait({ ...requests, ...tokens, "x-ratelimit-remaining-tokens": "0" })).toBe(9000)
    expect(
      wait({ ...requests, ...tokens, "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1s" })
    ).toBe(4000)
    expect(wait(tokens)).toBeUndefined()
  })

  it("states the limits of OpenAI", () => {
    const headers = {
      "x-ratelimit-limit-requests": "60",
      "x-ratelimit-remaining-requests": "59",
      "x-ratelimit-reset-requests": "1s",
      "x-ratelimit-limit-tokens": "150000"
    }
    expect(parse(headers).limits).toEqual([
      { name: "requests", limit: 60, remaining: 59, resetMillis: 1000 },
      { name: "tokens", limit: 150_000, remaining: undefined, resetMillis: undefined }
    ])
  })

  it("states the limits of Anthropic, whose resets are instants", () => {
    const headers = {
      "anthropic-ratelimit-input-tokens-limit": "40000",
      "anthropic-ratelimit-input-tokens-remaining": "0",
      "anthropic-ratelimit-input-tokens-reset": "2026-10-21T07:00:12Z",
      "anthropic-ratelimit-requests-remaining": "10",
      "anthropic-ratelimit-requests-reset": "2026-10-21T07:30:00Z"
    }
    const advice = parse(headers)
    expect(advice.waitMillis).toBe(12_000)
    expect(advice.limits).toEqual([
      { name: "requests", limit: undefined, remaining: 10, resetMillis: 1_800_000 },
      { name: "input-tokens", limit: 40_000, remaining: 0, resetMillis: 12_000 }
    ])
  })

  it("reads RFC 3339 with fractions and offsets, and nothing like it", () => {
    const reset = (value: string) => wait({ "anthropic-ratelimit-tokens-reset": value })
    expect(reset("2026-10-21T07:00:01.250Z")).toBe(1250)
    expect(reset("2026-10-21T09:00:30+02:00")).toBe(30_000)
    expect(reset("2026-10-21T01:30:30-05:30")).toBe(30_000)
    expect(reset("2026-10-21T06:00:00Z")).toBe(0)
    for (const value of ["2026-10-21", "2026-02-30T00:00:00Z", "2026-10-21T07:00:01", "1.5", "soon"]) {
      expect(reset(value), value).toBeUndefined()
    }
  })

  it("reads RateLimit and its policies", () => {
    const advice = parse({
      ratelimit: '"burst";r=0;t=30, "daily";r=50;t=3000, nonsense;;, "bad";r=-1',
      "ratelimit-policy": '"burst";q=100;w=60,"daily";q=1000;w=86400'
    })
    expect(advice.waitMillis).toBe(30_000)
    expect(advice.limits).toEqual([
      { name: "burst", limit: 100, remaining: 0, resetMillis: 30_000 },
      { name: "daily", limit: 1000, remaining: 50, resetMillis: 3_000_000 }
    ])
    expect(wait({ ratelimit: '"name";r=50;t=30' })).toBeUndefined()
  })

  it("passes on whether to retry", () => {
    expect(parse({ "x-should-retry": "true" }).shouldRetry).toBe(true)
    expect(parse({ "x-should-retry": "False" }).shouldRetry).toBe(false)
    expect(parse({ "x-should-retry": "maybe" }).shouldRetry).toBeUndefined()
  })

  it("says nothing when nothing was said", () => {
    expect(parse({})).toEqual({ waitMillis: undefined, shouldRetry: undefined, limits: [] })
  })

  it("ignores headers of unreasonable length and keeps at most sixteen limits", () => {
    expect(retryAfter("1".repeat(1025))).toBeUndefined()
    const many = [...Array(40).keys()].map((index) => `"p${index}";r=0;t=${index}`).join(",")
    expect(parse({ ratelimit: many }).limits).toHaveLength(16)
  })

  it("never makes NaN, a negative wait or one above an hour, whatever it reads", () => {
    const pieces = fc.constantFrom(
      "1",
      "0",
      ".",
      "-",
      "s",
      "m",
      "ms",
      "h",
      "e",
      "T",
      "Z",
      ":",
      " ",
      "GMT",
      "r=0",
      ";t=",
      '"'
    )
    const text = fc.oneof(
      fc.string(),
      fc.array(pieces, { maxLength: 12, size: "max" }).map((parts) => parts.join("")),
      fc.date({ noInvalidDate: true }).map((date) => date.toUTCString()),
      fc.date({ noInvalidDate: true }).map((date) => date.toISOString())
    )
    const names = ["retry-after", "retry-after-ms", "x-ratelimit-reset-tokens", "anthropic-ratelimit-tokens-reset"]
    fc.assert(
      fc.property(fc.constantFrom(...names, "ratelimit", "x-ratelimit-remaining-tokens"), text, (name, value) => {
        const { limits, waitMillis } = parse({ [name]: value })
        for (const millis of [waitMillis, ...limits.map((limit) => limit.resetMillis)]) {
          if (millis !== undefined) expect(millis >= 0 && millis <= RetryAfter.waitMillisMax).toBe(true)
        }
        for (const { limit, remaining } of limits) {
          expect(Number.isNaN(limit)).toBe(false)
          expect(Number.isNaN(remaining)).toBe(false)
        }
      }),
      { numRuns: 2000 }
    )
  })

  it("agrees with the platform about every date that both can read", () => {
    const seconds = fc.integer({ min: 0, max: 4_102_444_800 })
    fc.assert(
      fc.property(seconds, fc.integer({ min: -4000, max: 4000 }), (second, ahead) => {
        const text = new Date((second + ahead) * 1000).toUTCString()
        fc.pre(second + ahead >= 0)
        const expected = Math.min(Math.max(ahead, 0) * 1000, hour)
        expect(retryAfter(text, second * 1000)).toBe(expected)
        const iso = new Date((second + ahead) * 1000).toISOString()
        expect(wait({ "anthropic-ratelimit-requests-reset": iso }, second * 1000)).toBe(expected)
      })
    )
  })

  it("refuses a wall clock that shows no instant", () => {
    expect(() => parse({}, Number.NaN)).toThrow("retryAfter.parse: nowWallMillis must be an instant")
  })
})
