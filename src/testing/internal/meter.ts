/**
 * What the server itself enforces: a bucket that refills continuously, written apart from the library's own so that the
 * judge shares no code with the judged.
 *
 * Units: whatever is counted, per minute; instants in milliseconds.
 *
 * @internal
 */
export class Meter {
  readonly perMinute: number
  readonly burst: number
  #level: number
  #at: number

  constructor(perMinute: number, burstSeconds: number, nowMillis: number) {
    this.perMinute = perMinute
    this.burst = Math.max(1, (perMinute * burstSeconds) / 60)
    this.#level = this.burst
    this.#at = nowMillis
  }

  level(nowMillis: number): number {
    const gained = (Math.max(0, nowMillis - this.#at) * this.perMinute) / 60_000
    this.#level = Math.min(this.burst, this.#level + gained)
    this.#at = Math.max(this.#at, nowMillis)
    return this.#level
  }

  /** Takes `amount`, or takes nothing and says `false`. An amount above the burst passes when the bucket is full. */
  take(amount: number, nowMillis: number): boolean {
    if (this.level(nowMillis) + 1e-9 < Math.min(amount, this.burst)) return false
    this.#level -= amount
    return true
  }

  /** Puts the truth in the place of what was taken. */
  settle(taken: number, truth: number, nowMillis: number): void {
    this.level(nowMillis)
    this.#level = Math.min(this.burst, this.#level + taken - truth)
  }

  waitMillis(amount: number, nowMillis: number): number {
    const missing = Math.min(amount, this.burst) - this.level(nowMillis)
    return missing <= 0 ? 0 : Math.ceil((missing * 60_000) / this.perMinute)
  }

  /** How long until it is full again. */
  resetMillis(nowMillis: number): number {
    return Math.ceil(((this.burst - this.level(nowMillis)) * 60_000) / this.perMinute)
  }
}
