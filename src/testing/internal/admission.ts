/**
 * Who may in: requests a minute, tokens a minute, calls at once, a quota; and the headers in which each provider says so.
 *
 * Order as at the providers: a request that passes the first meter and fails the second has spent its request. Tokens
 * are taken up front for the prompt and the whole cap of the answer, and settled to the truth when the answer ends.
 *
 * @internal
 */
import * as DateTime from "effect/DateTime"
import { type Api, type Ask } from "./ask.ts"
import { Meter } from "./meter.ts"
import { error, isAnthropic } from "./shapes.ts"

export interface Limits {
  readonly maxConcurrency: number
  readonly hardConcurrency: number | undefined
  readonly requestsPerMinute: number | undefined
  readonly tokensPerMinute: number | undefined
  readonly burstSeconds: number
  readonly quota: number | undefined
}

export type Cause = "requests" | "tokens" | "concurrency" | "quota" | "overloaded"

export interface Denied {
  readonly cause: Cause
  readonly status: number
  readonly body: object
  readonly headers: Readonly<Record<string, string>>
}

/** A duration as OpenAI writes it: `6m0s`, `1.5s`, `20ms`. */
export const goDuration = (millis: number): string => {
  if (millis < 1_000) return `${Math.ceil(millis)}ms`
  const seconds = millis / 1_000
  if (seconds < 60) return `${Number(seconds.toFixed(3))}s`
  return `${Math.floor(seconds / 60)}m${Number((seconds % 60).toFixed(3))}s`
}

export class Admission {
  readonly #limits: Limits
  readonly #requests: Meter | undefined
  readonly #tokens: Meter | undefined
  #used = 0

  constructor(limits: Limits, nowMillis: number) {
    this.#limits = limits
    const meter = (perMinute: number | undefined): Meter | undefined =>
      perMinute === undefined ? undefined : new Meter(perMinute, limits.burstSeconds, nowMillis)
    this.#requests = meter(limits.requestsPerMinute)
    this.#tokens = meter(limits.tokensPerMinute)
  }

  /** Lets a request in, or says why not. `inFlight` counts those that are in, `slots` those served
   * at full speed at the moment. */
  admit(ask: Ask, inFlight: number, slots: number, nowMillis: number, wallMillis: number): Denied | undefined {
    const { hardConcurrency, quota } = this.#limits
    const cost = ask.promptTokens + ask.cap
    if (quota !== undefined && this.#used + ask.promptTokens > quota)
      return this.#deny(ask.api, "quota", 0, nowMillis, wallMillis)
    if (inFlight >= 4 * slots) return this.#deny(ask.api, "overloaded", 1_000, nowMillis, wallMillis)
    if (hardConcurrency !== undefined && inFlight >= hardConcurrency) {
      return this.#deny(ask.api, "concurrency", 1_000, nowMillis, wallMillis)
    }
    if (this.#requests?.take(1, nowMillis) === false) {
      return this.#deny(ask.api, "requests", this.#requests.waitMillis(1, nowMillis), nowMillis, wallMillis)
    }
    if (this.#tokens?.take(cost, nowMillis) === false) {
      return this.#deny(ask.api, "tokens", this.#tokens.waitMillis(cost, nowMillis), nowMillis, wallMillis)
    }
    return undefined
  }

  /** The truth of a request that was let in. */
  settle(ask: Ask, usedTokens: number, nowMillis: number): void {
    this.#used += usedTokens
    this.#tokens?.settle(ask.promptTokens + ask.cap, usedTokens, nowMillis)
  }

  /** The provider's own headers of what is left. */
  headers(api: Api, nowMillis: number, wallMillis: number): Record<string, string> {
    const headers: Record<string, string> = {}
    const put = (name: string, meter: Meter | undefined): void => {
      if (meter === undefined) return
      const left = String(Math.max(0, Math.floor(meter.level(nowMillis))))
      const reset = meter.resetMillis(nowMillis)
      const limit = String(Math.floor(meter.perMinute))
      if (isAnthropic(api)) {
        headers[`anthropic-ratelimit-${name}-limit`] = limit
        headers[`anthropic-ratelimit-${name}-remaining`] = left
        headers[`anthropic-ratelimit-${name}-reset`] = rfc3339(wallMillis + reset)
      } else {
        headers[`x-ratelimit-limit-${name}`] = limit
        headers[`x-ratelimit-remaining-${name}`] = left
        headers[`x-ratelimit-reset-${name}`] = goDuration(reset)
      }
    }
    put("requests", this.#requests)
    put("tokens", this.#tokens)
    if (isAnthropic(api)) {
      put("input-tokens", this.#tokens)
      put("output-tokens", this.#tokens)
    }
    return headers
  }

  #deny(api: Api, cause: Cause, waitMillis: number, nowMillis: number, wallMillis: number): Denied {
    const headers = this.headers(api, nowMillis, wallMillis)
    if (cause === "quota") {
      const message = "You exceeded your current quota, please check your plan and billing details."
      return {
        cause,
        status: 429,
        headers,
        body: isAnthropic(api)
          ? error(api, "billing_error", message)
          : error(api, "insufficient_quota", message, { code: "insufficient_quota" })
      }
    }
    headers["retry-after"] = String(Math.max(1, Math.ceil(waitMillis / 1_000)))
    if (!isAnthropic(api)) headers["retry-after-ms"] = String(Math.max(1, Math.ceil(waitMillis)))
    if (cause === "overloaded") {
      return isAnthropic(api)
        ? { cause, status: 529, headers, body: error(api, "overloaded_error", "Overloaded") }
        : {
            cause,
            status: 503,
            headers,
            body: error(api, "server_error", "The engine is currently overloaded, please try again later", {
              code: "overloaded"
            })
          }
    }
    const message = `Rate limit reached on ${cause} per ${cause === "concurrency" ? "account" : "min"}. Please try again in ${goDuration(waitMillis)}.`
    return {
      cause,
      status: 429,
      headers,
      body: isAnthropic(api)
        ? error(api, "rate_limit_error", message)
        : error(api, cause === "tokens" ? "tokens" : "requests", message, { code: "rate_limit_exceeded" })
    }
  }
}

/** An instant as RFC 3339, to the second. */
const rfc3339 = (wallMillis: number): string =>
  DateTime.formatIso(DateTime.makeUnsafe(wallMillis)).replace(/\.\d+Z$/, "Z")
