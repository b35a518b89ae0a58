/**
 * One dependency's admission as a single state machine: slots, rate buckets and the waiting line decided together.
 *
 * Taking a slot first and a rate token after, from two mechanisms, wastes one whenever the other is short: slots are
 * held by calls that wait for a token, tokens are gone for calls that wait for a slot. Here a call gets all it needs in
 * one step or stays in line. A call that re-enters the dependency from inside its own slot needs no slot and stands in
 * an express line of its own, because behind the main line it could wait for the very slot it runs in.
 *
 * Costs: O(log n) to enter, O(1) amortized to cancel, O(rates) to grant. Time comes in as an argument.
 *
 * @internal
 */
import * as FairQueue from "./fairQueue.ts"
import * as TokenBucket from "./tokenBucket.ts"

export interface Ticket extends FairQueue.Item {
  readonly needsSlot: boolean
  /** What it costs in each rate's unit. */
  readonly tokens: number
  state: "new" | "waiting" | "granted" | "ended"
}

export interface Rate {
  readonly name: string
  readonly unit: "requests" | "tokens"
  readonly bucket: TokenBucket.TokenBucket
}

/** A second bound on slots that moves with time: what a breaker lets through after it has closed. */
export interface Ceiling {
  /** Whether one more of `limit` calls may start now. */
  allows(limit: number, nowMillis: number): boolean
  /** When that changes next by itself: later than now, or `Infinity`. */
  nextMillis(limit: number, nowMillis: number): number
}

export interface Machine<T extends Ticket> {
  limit: number
  readonly ceiling: Ceiling | undefined
  inFlight: number
  readonly rates: ReadonlyArray<Rate>
  readonly line: FairQueue.FairQueue<T>
  readonly express: FairQueue.FairQueue<T>
  readonly capacity: number
  pausedUntilMillis: number
}

export type Entry =
  | { readonly _tag: "Granted" }
  | { readonly _tag: "Waiting" }
  | { readonly _tag: "QueueFull"; readonly capacity: number }
  | { readonly _tag: "TooLate"; readonly waitMillis: number }
  | { readonly _tag: "NeverFits"; readonly rate: string; readonly cost: number; readonly capacity: number }

export type Unfit = Extract<Entry, { readonly _tag: "NeverFits" }>

const granted: Entry = { _tag: "Granted" }
const waiting: Entry = { _tag: "Waiting" }

export const make = <T extends Ticket>(options: {
  readonly limit: number
  readonly rates: ReadonlyArray<Rate>
  readonly capacity: number
  readonly line: FairQueue.Options
  readonly ceiling: Ceiling | undefined
}): Machine<T> => ({
  limit: options.limit,
  ceiling: options.ceiling,
  inFlight: 0,
  rates: options.rates,
  line: FairQueue.make<T>(options.line),
  express: FairQueue.make<T>(options.line),
  capacity: options.capacity,
  pausedUntilMillis: -Infinity
})

const costOf = (rate: Rate, ticket: Ticket): number => (rate.unit === "requests" ? 1 : ticket.tokens)

const hasSlot = <T extends Ticket>(self: Machine<T>, now: number): boolean =>
  self.inFlight < self.limit && (self.ceiling === undefined || self.ceiling.allows(self.limit, now))

const fits = <T extends Ticket>(self: Machine<T>, ticket: T, now: number): boolean => {
  if (now < self.pausedUntilMillis) return false
  if (ticket.needsSlot && !hasSlot(self, now)) return false
  for (const rate of self.rates) {
    if (!TokenBucket.canTake(rate.bucket, costOf(rate, ticket), now)) return false
  }
  return true
}

const grant = <T extends Ticket>(self: Machine<T>, ticket: T, now: number): void => {
  for (const rate of self.rates) TokenBucket.take(rate.bucket, costOf(rate, ticket), now)
  if (ticket.needsSlot) self.inFlight++
  ticket.state = "granted"
}

/** How long the rates alone make this ticket wait, with nobody before it. */
const leastWaitMillis = <T extends Ticket>(self: Machine<T>, ticket: T, now: number): number => {
  let wait = Math.max(0, self.pausedUntilMillis - now)
  for (const rate of self.rates) wait = Math.max(wait, TokenBucket.waitMillis(rate.bucket, costOf(rate, ticket), now))
  return wait
}

const unfitOf = <T extends Ticket>(self: Machine<T>, ticket: T): Unfit | undefined => {
  for (const rate of self.rates) {
    const cost = costOf(rate, ticket)
    if (TokenBucket.neverFits(rate.bucket, cost)) {
      return { _tag: "NeverFits", rate: rate.name, cost, capacity: rate.bucket.capacity }
    }
  }
  return undefined
}

/** Takes a head out of its line that no wait can help any more, since the rates were lowered. */
export const misfit = <T extends Ticket>(
  self: Machine<T>,
  now: number
): { readonly ticket: T; readonly entry: Unfit } | undefined => {
  for (const line of [self.express, self.line]) {
    const ticket = line.size === 0 ? undefined : FairQueue.peek(line, now)
    const entry = ticket === undefined ? undefined : unfitOf(self, ticket)
    if (ticket === undefined || entry === undefined) continue
    ticket.state = "ended"
    FairQueue.cancel(line, ticket)
    return { ticket, entry }
  }
  return undefined
}

/**
 * Grants at once when nobody waits and everything fits, else puts the ticket in line, else says why not: also when the
 * rates alone would keep it beyond `latestMillis`, so that what cannot be in time is refused now and not then.
 */
export const enter = <T extends Ticket>(self: Machine<T>, ticket: T, now: number, latestMillis: number): Entry => {
  const unfit = unfitOf(self, ticket)
  if (unfit !== undefined) return unfit
  const line = ticket.needsSlot ? self.line : self.express
  if (line.size === 0 && fits(self, ticket, now)) {
    grant(self, ticket, now)
    return granted
  }
  const waitMillis = leastWaitMillis(self, ticket, now)
  if (now + waitMillis > latestMillis) return { _tag: "TooLate", waitMillis }
  if (line.size >= self.capacity) return { _tag: "QueueFull", capacity: self.capacity }
  ticket.state = "waiting"
  FairQueue.offer(line, ticket)
  return waiting
}

/** Takes the next ticket that may run now out of the line and grants it; `undefined` when the head must wait. */
export const advance = <T extends Ticket>(self: Machine<T>, now: number): T | undefined => {
  for (const line of [self.express, self.line]) {
    const head = line.size === 0 ? undefined : FairQueue.peek(line, now)
    if (head !== undefined && fits(self, head, now)) {
      FairQueue.take(line, now)
      grant(self, head, now)
      return head
    }
  }
  return undefined
}

/** When the head of a line could run if a slot were free; `Infinity` when only a returned slot can help. */
export const wakeAt = <T extends Ticket>(self: Machine<T>, now: number): number => {
  let wake = Infinity
  for (const line of [self.express, self.line]) {
    const head = line.size === 0 ? undefined : FairQueue.peek(line, now)
    if (head === undefined || (head.needsSlot && self.inFlight >= self.limit)) continue
    let at = Math.max(now, self.pausedUntilMillis)
    if (head.needsSlot && self.ceiling !== undefined && !hasSlot(self, now)) {
      at = Math.max(at, self.ceiling.nextMillis(self.limit, now))
    }
    for (const rate of self.rates) at = Math.max(at, now + TokenBucket.waitMillis(rate.bucket, costOf(rate, head), now))
    wake = Math.min(wake, at)
  }
  return wake
}

/** Leaves the line; what was never granted has cost nothing. */
export const cancel = <T extends Ticket>(self: Machine<T>, ticket: T): void => {
  if (ticket.state !== "waiting") return
  ticket.state = "ended"
  FairQueue.cancel(ticket.needsSlot ? self.line : self.express, ticket)
}

/** Gives the slot back and puts the truth in the place of what the token rates were charged. */
export const leave = <T extends Ticket>(
  self: Machine<T>,
  ticket: T,
  usedTokens: number | undefined,
  now: number
): void => {
  if (ticket.state !== "granted") return
  ticket.state = "ended"
  if (ticket.needsSlot) self.inFlight--
  if (usedTokens === undefined || usedTokens === ticket.tokens) return
  for (const rate of self.rates) {
    if (rate.unit === "tokens") TokenBucket.reconcile(rate.bucket, ticket.tokens, usedTokens, now)
  }
}

/** Lets nobody start before `untilMillis`; a later pause that stands is kept. */
export const pause = <T extends Ticket>(self: Machine<T>, untilMillis: number): void => {
  if (untilMillis > self.pausedUntilMillis) self.pausedUntilMillis = untilMillis
}

/** How many wait, by tier. */
export const waitingByTier = <T extends Ticket>(self: Machine<T>): readonly [number, number, number, number] => {
  const of = (tier: 0 | 1 | 2 | 3): number => FairQueue.sizeOf(self.line, tier) + FairQueue.sizeOf(self.express, tier)
  return [of(0), of(1), of(2), of(3)]
}
