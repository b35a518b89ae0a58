/**
 * What a provider says about when to come back, read from the headers of its answer.
 *
 * Providers tell how long to wait in half a dozen notations, and a parser that is lenient with one of them reads
 * nonsense in the next: "1.5" as a year, a date as NaN and NaN as "at once". Here every notation has its own strict
 * pattern. What does not match is ignored, as if it had not been said, and never read as zero.
 *
 * Asked by whoever classifies a failed call; the gate pauses for `waitMillis`, the adaptive parts learn from
 * `limits`. It decides nothing and reads no clock. The instant now is one of the wall clock, which dates refer to.
 *
 * **Details** `Retry-After` is RFC 9110 (seconds, or a date in any of its three forms), `RateLimit` and
 * `RateLimit-Policy` are draft-ietf-httpapi-ratelimit-headers, the others are what OpenAI (`retry-after-ms`,
 * `x-should-retry`, `x-ratelimit-*` with durations as Go prints them) and Anthropic (`anthropic-ratelimit-*` with
 * RFC 3339 instants) send. The most precise one wins: `retry-after-ms`, then `Retry-After`, then the latest reset of
 * a limit that is used up. Units: milliseconds; from 0 to `waitMillisMax`, and never NaN.
 *
 * @since 0.1.0
 */

/**
 * Looks a header up by its name in lower case.
 *
 * @category models
 * @since 0.1.0
 */
export type Headers = (name: string) => string | undefined

/**
 * One limit of the provider, as far as it was stated.
 *
 * @category models
 * @since 0.1.0
 */
export interface Limit {
  /** What is limited: `requests`, `tokens`, `input-tokens`, `output-tokens`, or the name of a policy. */
  readonly name: string
  /** How much a window allows. */
  readonly limit: number | undefined
  /** How much of it is left. */
  readonly remaining: number | undefined
  /** Until it is whole again, in milliseconds. */
  readonly resetMillis: number | undefined
}

/**
 * What the answer said.
 *
 * @category models
 * @since 0.1.0
 */
export interface Advice {
  /** How long to wait at least; `undefined` when nothing was said that makes sense. */
  readonly waitMillis: number | undefined
  /** Whether the provider asks for a retry, or not to retry. */
  readonly shouldRetry: boolean | undefined
  /** The limits it stated; at most 16. */
  readonly limits: ReadonlyArray<Limit>
}

/**
 * The longest wait that is believed: one hour. Nobody holds a call for longer, so whatever says more only has to be
 * longer than any deadline.
 *
 * @category constants
 * @since 0.1.0
 */
export const waitMillisMax = 3_600_000

/** A header is a few words. Longer ones are somebody's mistake, or an attack on the patterns below. */
const lengthMax = 1024
const limitsMax = 16

const read = (headers: Headers, name: string): string | undefined => {
  const value = headers(name)?.trim()
  return value === undefined || value === "" || value.length > lengthMax ? undefined : value
}

const cap = (millis: number): number => Math.min(Math.max(millis, 0), waitMillisMax)

/** A plain decimal number; no sign, no exponent, no hexadecimal. */
const decimal = (text: string | undefined): number | undefined =>
  text !== undefined && /^\d+(?:\.\d+)?$/.test(text) ? Number(text) : undefined

const waitOfNumber = (text: string | undefined, unitMillis: number): number | undefined => {
  const value = decimal(text)
  return value === undefined ? undefined : cap(value * unitMillis)
}

const months = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]

// `Date.UTC` turns the 31st of February into the 3rd of March; a date that is none is ignored instead.
const instantOf = (
  year: number,
  month: number,
  day: number,
  hour: number,
  minute: number,
  second: number
): number | undefined => {
  const midnight = new Date(Date.UTC(2000, month, day)).setUTCFullYear(year, month, day)
  if (month < 0 || new Date(midnight).getUTCDate() !== day) return undefined
  if (hour > 23 || minute > 59 || second > 60) return undefined
  return midnight + ((hour * 60 + minute) * 60 + second) * 1000
}

const clock = String.raw`(?<hour>\d\d):(?<minute>\d\d):(?<second>\d\d)`
const httpDates = [
  // Wed, 21 Oct 2026 07:28:00 GMT
  new RegExp(String.raw`^[a-z]{3}, (?<day>\d\d) (?<month>[a-z]{3}) (?<year>\d{4}) ${clock} GMT$`, "i"),
  // Wednesday, 21-Oct-26 07:28:00 GMT
  new RegExp(String.raw`^[a-z]{6,9}, (?<day>\d\d)-(?<month>[a-z]{3})-(?<year>\d\d) ${clock} GMT$`, "i"),
  // Wed Oct 21 07:28:00 2026
  new RegExp(String.raw`^[a-z]{3} (?<month>[a-z]{3}) (?<day>[\d ]\d) ${clock} (?<year>\d{4})$`, "i")
]

const httpDate = (text: string, nowWallMillis: number): number | undefined => {
  for (const pattern of httpDates) {
    const parts = pattern.exec(text)?.groups
    if (parts === undefined) continue
    let year = Number(parts["year"])
    if (parts["year"]!.length === 2) {
      // RFC 9110: a date that seems more than fifty years ahead lies in the last century.
      const thisYear = new Date(nowWallMillis).getUTCFullYear()
      year += thisYear - (thisYear % 100)
      if (year > thisYear + 50) year -= 100
    }
    return instantOf(
      year,
      months.indexOf(parts["month"]!.toLowerCase()),
      Number(parts["day"]),
      Number(parts["hour"]),
      Number(parts["minute"]),
      Number(parts["second"])
    )
  }
  return undefined
}

const rfc3339 = /^(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(\.\d+)?(?:[Zz]|([+-])(\d\d):(\d\d))$/

const instant3339 = (text: string): number | undefined => {
  const parts = rfc3339.exec(text)
  if (parts === null) return undefined
  const [year, month, day, hour, minute, second] = parts.slice(1, 7).map(Number) as [
    number,
    number,
    number,
    number,
    number,
    number
  ]
  const offsetMinutes =
    parts[8] === undefined ? 0 : Number(`${parts[8]}1`) * (Number(parts[9]) * 60 + Number(parts[10]))
  const whole = instantOf(year, month - 1, day, hour, minute, second)
  return whole === undefined ? undefined : whole + Number(parts[7] ?? 0) * 1000 - offsetMinutes * 60_000
}

const goUnits: Record<string, number> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  μs: 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000
}

/** A duration as Go prints it, `6m0s` or `20ms`; a bare number is seconds, which compatible servers send. */
const goDuration = (text: string): number | undefined => {
  if (!/^(?:\d+(?:\.\d+)?(?:ns|us|µs|μs|ms|s|m|h))+$/.test(text)) return waitOfNumber(text, 1000)
  let millis = 0
  for (const [, value, unit] of text.matchAll(/(\d+(?:\.\d+)?)([a-zµμ]+)/g)) millis += Number(value) * goUnits[unit!]!
  return cap(millis)
}

const stated = (name: string, limit: Omit<Limit, "name">): ReadonlyArray<Limit> =>
  limit.limit === undefined && limit.remaining === undefined && limit.resetMillis === undefined
    ? []
    : [{ name, ...limit }]

const openAi = (headers: Headers): ReadonlyArray<Limit> =>
  ["requests", "tokens"].flatMap((name) => {
    const reset = read(headers, `x-ratelimit-reset-${name}`)
    return stated(name, {
      limit: decimal(read(headers, `x-ratelimit-limit-${name}`)),
      remaining: decimal(read(headers, `x-ratelimit-remaining-${name}`)),
      resetMillis: reset === undefined ? undefined : goDuration(reset)
    })
  })

const anthropic = (headers: Headers, nowWallMillis: number): ReadonlyArray<Limit> =>
  ["requests", "tokens", "input-tokens", "output-tokens"].flatMap((name) => {
    const reset = read(headers, `anthropic-ratelimit-${name}-reset`)
    const instant = reset === undefined ? undefined : instant3339(reset)
    return stated(name, {
      limit: decimal(read(headers, `anthropic-ratelimit-${name}-limit`)),
      remaining: decimal(read(headers, `anthropic-ratelimit-${name}-remaining`)),
      resetMillis: instant === undefined ? undefined : cap(instant - nowWallMillis)
    })
  })

/** Items of a structured-field list, `"name";key=1;other=2, "next";…`, as maps of their whole numbers. */
const listOf = (text: string | undefined): Map<string, Map<string, number>> => {
  const items = new Map<string, Map<string, number>>()
  for (const item of text?.split(",") ?? []) {
    const [head, ...parameters] = item.split(";").map((part) => part.trim())
    const name = /^(?:"([^"\\]*)"|([a-z*][\w.:/*-]*))$/i.exec(head!)
    if (name === null || items.size === limitsMax) continue
    const numbers = new Map<string, number>()
    for (const parameter of parameters) {
      const pair = /^([a-z]+)=(\d{1,15})$/.exec(parameter)
      if (pair !== null) numbers.set(pair[1]!, Number(pair[2]))
    }
    items.set(name[1] ?? name[2]!, numbers)
  }
  return items
}

const structured = (headers: Headers): ReadonlyArray<Limit> => {
  const policies = listOf(read(headers, "ratelimit-policy"))
  return [...listOf(read(headers, "ratelimit"))].flatMap(([name, numbers]) => {
    const seconds = numbers.get("t")
    return stated(name, {
      limit: policies.get(name)?.get("q"),
      remaining: numbers.get("r"),
      resetMillis: seconds === undefined ? undefined : cap(seconds * 1000)
    })
  })
}

/**
 * Reads the advice of an answer.
 *
 * **Details** A reset only means a wait when its limit has nothing remaining, or does not say: a limit that still has
 * something left is not what the call failed on. Where several are used up, the latest reset counts.
 *
 * @category operations
 * @since 0.1.0
 */
export const parse = (headers: Headers, nowWallMillis: number): Advice => {
  if (!(Math.abs(nowWallMillis) <= 8.64e15)) {
    throw new RangeError(`retryAfter.parse: nowWallMillis must be an instant a Date can hold, got ${nowWallMillis}`)
  }
  const limits = [...openAi(headers), ...anthropic(headers, nowWallMillis), ...structured(headers)].slice(0, limitsMax)
  let reset: number | undefined
  for (const { remaining, resetMillis } of limits) {
    if (resetMillis !== undefined && (remaining ?? 0) === 0) reset = Math.max(reset ?? 0, resetMillis)
  }
  const after = read(headers, "retry-after")
  const instant = after === undefined ? undefined : httpDate(after, nowWallMillis)
  const shouldRetry = read(headers, "x-should-retry")?.toLowerCase()
  return {
    waitMillis:
      waitOfNumber(read(headers, "retry-after-ms"), 1) ??
      waitOfNumber(after, 1000) ??
      (instant === undefined ? reset : cap(instant - nowWallMillis)),
    shouldRetry: shouldRetry === "true" ? true : shouldRetry === "false" ? false : undefined,
    limits
  }
}
