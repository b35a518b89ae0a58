/**
 * How much a dependency takes per second or minute, in requests or in tokens, as a token bucket.
 *
 * The bucket refills continuously, so there is no edge of a window through which twice the limit fits: starts in any
 * stretch of time are at most `rate x time + burst`. It runs a little under the stated limit (`headroom`), because two
 * clocks never agree.
 *
 * @stability experimental
 * @since 0.1.0
 */
import { finite, positive } from "./internal/number.ts"

/**
 * A rate with its bucket: `perSecond` is what flows in (headroom applied), `burst` what it holds when full and the most
 * that one call may cost.
 *
 * @category models
 * @since 0.1.0
 */
export interface Rate {
  readonly name: string
  readonly unit: "requests" | "tokens"
  readonly perSecond: number
  readonly burst: number
}

/**
 * - `unit`: what is counted; default `"requests"`.
 * - `burst`: what may start at once after a pause, and the most that one call may cost; default 1 request, or the tokens
 *   of the whole period (a smaller bucket would refuse calls that the provider takes).
 * - `headroom`: the share of the stated limit that is used, above 0 and at most 1; default 0.97. Take 0.8 to 0.9 where
 *   other clients share the limit.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options {
  readonly unit?: "requests" | "tokens"
  readonly burst?: number
  readonly headroom?: number
}

const make = (where: string, amount: number, seconds: number, options: Options): Rate => {
  positive(`${where}: amount`, amount)
  const unit = options.unit ?? "requests"
  const headroom = positive(`${where}: headroom`, finite(`${where}: headroom`, options.headroom ?? 0.97, 0, 1))
  const burst = finite(`${where}: burst`, options.burst ?? (unit === "requests" ? 1 : Math.max(1, amount)), 1)
  return {
    name: `${amount} ${unit}/${seconds === 1 ? "s" : "min"}`,
    unit,
    perSecond: (amount * headroom) / seconds,
    burst
  }
}

/**
 * So many a second.
 *
 * **Errors** a `RangeError` for an amount, burst or headroom out of range.
 *
 * @category constructors
 * @since 0.1.0
 */
export const perSecond = (amount: number, options: Options = {}): Rate => make("Rate.perSecond", amount, 1, options)

/**
 * So many a minute.
 *
 * **Errors** a `RangeError` for an amount, burst or headroom out of range.
 *
 * **Example** (A provider's stated limits)
 *
 * ```ts
 * import * as Rate from "espalier/Rate"
 *
 * const limits = [Rate.perMinute(600), Rate.perMinute(100_000, { unit: "tokens" })]
 * console.log(limits.map((rate) => rate.name).join(", ")) // => 600 requests/min, 100000 tokens/min
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const perMinute = (amount: number, options: Options = {}): Rate => make("Rate.perMinute", amount, 60, options)
