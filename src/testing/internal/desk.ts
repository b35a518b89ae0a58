/**
 * Everything that changes while a model server runs: who is in, what was counted, what goes wrong at the moment.
 *
 * @internal
 */
import type * as Clock from "effect/Clock"
import { Admission, type Cause, type Limits } from "./admission.ts"
import type { Api } from "./ask.ts"
import { digest, draws } from "./seeded.ts"

export interface Faults {
  readonly error: number
  readonly malformed: number
  readonly cut: number
  readonly errorInStream: number
  readonly hang: number
}

/** What a desk needs to know; the public options describe each. */
export interface Settings {
  readonly seed?: number
  readonly maxConcurrency?: number
  readonly hardConcurrency?: number
  readonly requestsPerMinute?: number
  readonly tokensPerMinute?: number
  readonly burstSeconds?: number
  readonly quota?: number
  readonly baseMillis?: number
  readonly promptTokensPerSecond?: number
  readonly outputTokensPerSecond?: number
  readonly timeScale?: number
  readonly faults?: Partial<Faults>
  readonly reply?: (ask: {
    readonly model: string
    readonly prompt: string
  }) => { readonly text: string } | { readonly json: unknown } | undefined
}

export interface Stats {
  readonly requests: number
  readonly ok: number
  readonly throttled: number
  readonly throttledBy: { readonly [C in Cause]: number }
  readonly failed: number
  readonly aborted: number
  readonly inputTokens: number
  readonly outputTokens: number
  readonly cachedTokens: number
  readonly reasoningTokens: number
  readonly totalTokens: number
  readonly inFlight: number
  readonly peakInFlight: number
}

export interface Served {
  readonly id: string
  readonly request: string | undefined
  readonly path: string
  readonly status: number
  readonly inputTokens: number
  readonly outputTokens: number
  readonly aborted: boolean
}

/** A time in which there are fewer slots and more errors. */
export interface Brownout {
  readonly slots: number
  readonly errors: number
  readonly untilMillis: number
}

/** Requests that the log keeps. */
export const logKept = 10_000

const noFaults: Faults = { error: 0, malformed: 0, cut: 0, errorInStream: 0, hang: 0 }
const noneThrottled = (): Record<Cause, number> => ({ requests: 0, tokens: 0, concurrency: 0, quota: 0, overloaded: 0 })

export class Desk {
  readonly options: Settings
  readonly limits: Limits
  readonly clock: Clock.Clock
  admission: Admission
  #faults: Faults
  #brownouts: Array<Brownout> = []
  inFlight = 0
  peakInFlight = 0
  requests = 0
  ok = 0
  failed = 0
  aborted = 0
  input = 0
  output = 0
  cached = 0
  reasoning = 0
  throttledBy = noneThrottled()
  served: Array<Served> = []
  readonly #seen = new Map<string, number>()
  #nextId = 0

  constructor(options: Settings, clock: Clock.Clock) {
    this.options = options
    this.clock = clock
    this.limits = {
      maxConcurrency: options.maxConcurrency ?? 64,
      hardConcurrency: options.hardConcurrency,
      requestsPerMinute: options.requestsPerMinute,
      tokensPerMinute: options.tokensPerMinute,
      burstSeconds: options.burstSeconds ?? 5,
      quota: options.quota
    }
    this.#faults = { ...noFaults, ...options.faults }
    this.admission = new Admission(this.limits, this.now)
  }

  setFaults(faults: Partial<Faults>): void {
    this.#faults = { ...this.#faults, ...faults }
  }

  /** Brownouts end by themselves; where two overlap, the one that began last counts. */
  brownOut(brownout: Brownout): void {
    this.#brownouts.push(brownout)
  }

  get #brownout(): Brownout | undefined {
    if (this.#brownouts.length === 0) return undefined
    const now = this.now
    this.#brownouts = this.#brownouts.filter((each) => now < each.untilMillis)
    return this.#brownouts.at(-1)
  }

  get faults(): Faults {
    const brownout = this.#brownout
    return brownout === undefined ? this.#faults : { ...this.#faults, error: brownout.errors }
  }

  get now(): number {
    return Number(this.clock.monotonicTimeNanosUnsafe()) / 1_000_000
  }
  get wall(): number {
    return this.clock.currentTimeMillisUnsafe()
  }

  reset(): void {
    this.admission = new Admission(this.limits, this.now)
    this.requests = this.ok = this.failed = this.aborted = 0
    this.input = this.output = this.cached = this.reasoning = 0
    this.peakInFlight = this.inFlight
    this.throttledBy = noneThrottled()
    this.served = []
    this.#seen.clear()
  }

  /** The draws of a request: of the seed, its body, and how often that body came before. */
  draw(path: string, text: string): () => number {
    const request = `${path}\n${text}`
    const key = digest(request)
    const seen = this.#seen.get(key) ?? 0
    if (this.#seen.size < 100_000 || seen > 0) this.#seen.set(key, seen + 1)
    return draws(`${this.options.seed ?? 0}\n${seen}\n${request}`)
  }

  newId(api: Api, draw: () => number): string {
    const tail = Array.from({ length: 24 }, () => Math.floor(draw() * 36).toString(36)).join("")
    const prefix = api === "chat" ? "chatcmpl-" : api === "responses" ? "resp_" : "msg_"
    return `${prefix}${(this.#nextId++).toString(36)}${tail}`
  }

  log(entry: Served): void {
    this.served.push(entry)
    if (this.served.length > 2 * logKept) this.served = this.served.slice(-logKept)
  }

  /** Calls served at full speed at the moment. */
  get slots(): number {
    return this.limits.maxConcurrency * (this.#brownout?.slots ?? 1)
  }

  /** How many times slower than alone: calls share what the slots can do, and too many cost something besides. */
  get slowdown(): number {
    const load = this.inFlight / this.slots
    return load <= 1 ? 1 : load * (1 + 0.25 * (load - 1))
  }

  stats(): Stats {
    return {
      requests: this.requests,
      ok: this.ok,
      throttled: Object.values(this.throttledBy).reduce((sum, count) => sum + count, 0),
      throttledBy: { ...this.throttledBy },
      failed: this.failed,
      aborted: this.aborted,
      inputTokens: this.input,
      outputTokens: this.output,
      cachedTokens: this.cached,
      reasoningTokens: this.reasoning,
      totalTokens: this.input + this.output,
      inFlight: this.inFlight,
      peakInFlight: this.peakInFlight
    }
  }
}
