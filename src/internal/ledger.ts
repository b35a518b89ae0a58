/**
 * The books of a tree: double-entry accounts for tokens and money.
 *
 * Every node has an account. For each unit it either owns a grant, carved out of the nearest account above that owns
 * one, or it draws through: it has no limit of its own and every hold goes to that owner. A hold is an upper bound that
 * is set aside before a call; settling replaces it by the truth. So at every account, at every moment,
 * `granted = spent + held + delegated + free`, and nothing is ever checked in one step and debited in another.
 *
 * A grant is gone from the parent's view when it is made, not when the child ends: siblings that start together cannot
 * each see the same remainder. What a child has left goes back once, when it closes. A reserve is simply a hold that a
 * node keeps for its own last words: it is not free, so no descendant can eat it.
 *
 * Truth beyond a hold is booked all the same. It is taken from what the account has free, then from its ancestors, and
 * where even the root has none the root's grant grows by it. The account is stopped: it holds
 * and delegates no more.
 *
 * Units: whole tokens, whole micro-dollars; `Infinity` is unlimited. Costs: O(depth between account and owner).
 *
 * @internal
 */
import type { Amount, Spend } from "../Spend.ts"

export interface Purse {
  /** `Infinity` when the account owns no grant in this unit. */
  granted: number
  spent: number
  held: number
  delegated: number
}

export interface Account {
  readonly id: string
  readonly parent: Account | undefined
  readonly tokens: Purse
  readonly microDollars: Purse
  /** Spent by the node itself, without its descendants. */
  ownTokens: number
  ownMicroDollars: number
  reserve: Hold | undefined
  stopped: boolean
  closed: boolean
}

export interface Hold {
  readonly account: Account
  tokens: number
  microDollars: number
  settled: boolean
}

export type Unit = "tokens" | "microDollars"
const units: readonly [Unit, Unit] = ["tokens", "microDollars"]

export type Refusal =
  | {
      readonly _tag: "BudgetExceeded"
      readonly unit: Unit
      readonly asked: number
      readonly free: number
      readonly account: string
      readonly stopped: boolean
    }
  | { readonly _tag: "Unpriced"; readonly account: string }

const purse = (granted: number): Purse => ({ granted, spent: 0, held: 0, delegated: 0 })

const account = (id: string, parent: Account | undefined, tokens: number, microDollars: number): Account => ({
  id,
  parent,
  tokens: purse(tokens),
  microDollars: purse(microDollars),
  ownTokens: 0,
  ownMicroDollars: 0,
  reserve: undefined,
  stopped: false,
  closed: false
})

/** What is free in one unit of one account. */
const freeOf = (self: Purse): number =>
  self.granted === Infinity ? Infinity : self.granted - self.spent - self.held - self.delegated

/** The nearest account, from `self` up, that owns a grant in `unit`; `undefined` when none does. */
const ownerOf = (self: Account, unit: Unit): Account | undefined => {
  let at: Account | undefined = self
  while (at !== undefined && at[unit].granted === Infinity) at = at.parent
  return at
}

/** What a call of this account could still hold. */
export const available = (self: Account, unit: Unit): number => {
  for (let at: Account | undefined = self; at !== undefined; at = at.parent) {
    if (at.stopped || at.closed) return 0
    if (at[unit].granted !== Infinity) return freeOf(at[unit])
  }
  return Infinity
}

/** Adds to one column of every account from `self` up to the owner of the grant (to the root when there is none). */
const book = (self: Account | undefined, unit: Unit, column: "spent" | "held" | "delegated", amount: number): void => {
  if (amount === 0) return
  for (let at = self; at !== undefined; at = at.parent) {
    at[unit][column] += amount
    if (at[unit].granted !== Infinity) return
  }
}

/** The refusal of the tightest account, or `undefined` when `amount` may be taken from `self`. */
const refuse = (self: Account, unit: Unit, amount: number): Refusal | undefined => {
  for (let at: Account | undefined = self; at !== undefined; at = at.parent) {
    if (at.stopped || at.closed)
      return { _tag: "BudgetExceeded", unit, asked: amount, free: 0, account: at.id, stopped: true }
    if (at[unit].granted !== Infinity) {
      const free = freeOf(at[unit])
      return amount <= free
        ? undefined
        : { _tag: "BudgetExceeded", unit, asked: amount, free, account: at.id, stopped: false }
    }
  }
  return undefined
}

/** Opens the books of a tree. An absent unit is unlimited; 0 is nothing at all. */
export const open = (id: string, grant: Spend): Account =>
  account(id, undefined, grant.tokens ?? Infinity, grant.microDollars ?? Infinity)

/** Whether the books said no. */
export const isRefusal = (value: Account | Hold | Refusal): value is Refusal => "_tag" in value

/**
 * Opens an account below `parent` and carves its grant out at once, both units or neither. An absent unit draws through.
 * `reserve` is set aside inside it.
 */
export const delegate = (parent: Account, id: string, grant: Spend, reserve?: Spend): Account | Refusal => {
  for (const unit of units) {
    const refusal = refuse(parent, unit, grant[unit] ?? 0)
    if (refusal !== undefined) return refusal
  }
  const child = account(id, parent, grant.tokens ?? Infinity, grant.microDollars ?? Infinity)
  for (const unit of units) {
    if (grant[unit] !== undefined) book(parent, unit, "delegated", grant[unit])
  }
  if (reserve !== undefined && ((reserve.tokens ?? 0) > 0 || (reserve.microDollars ?? 0) > 0)) {
    const kept = hold(child, { tokens: reserve.tokens ?? 0, microDollars: reserve.microDollars ?? 0 })
    if (isRefusal(kept)) {
      close(child)
      return kept
    }
    child.reserve = kept
  }
  return child
}

/** Sets an upper bound aside before a call; both units or neither. `fromReserve` opens the account's reserve to it. */
export const hold = (self: Account, amount: Spend, fromReserve: boolean = false): Hold | Refusal => {
  // Tokens cost money; a call that states neither is a tool that costs nothing here.
  if (amount.microDollars === undefined && amount.tokens !== undefined && amount.tokens > 0) {
    const owner = ownerOf(self, "microDollars")
    if (owner !== undefined) return { _tag: "Unpriced", account: owner.id }
  }
  const tokens = amount.tokens ?? 0
  const microDollars = amount.microDollars ?? 0
  const reserve = fromReserve ? self.reserve : undefined
  const fromTokens = reserve === undefined ? 0 : Math.min(reserve.tokens, tokens)
  const fromMicroDollars = reserve === undefined ? 0 : Math.min(reserve.microDollars, microDollars)
  const refusal =
    refuse(self, "tokens", tokens - fromTokens) ?? refuse(self, "microDollars", microDollars - fromMicroDollars)
  if (refusal !== undefined) return refusal
  if (reserve !== undefined) {
    reserve.tokens -= fromTokens
    reserve.microDollars -= fromMicroDollars
  }
  book(self, "tokens", "held", tokens - fromTokens)
  book(self, "microDollars", "held", microDollars - fromMicroDollars)
  return { account: self, tokens, microDollars, settled: false }
}

/** Moves what `self` lacks down from its ancestors; by what even the root lacks its grant grows. */
const cover = (self: Account, unit: Unit, amount: number): void => {
  const owner = ownerOf(self, unit)
  if (owner === undefined) return
  const missing = amount - freeOf(owner[unit])
  if (missing <= 0) return
  if (owner.parent !== undefined) {
    cover(owner.parent, unit, missing)
    book(owner.parent, unit, "delegated", missing)
  }
  owner[unit].granted += missing
}

/**
 * Replaces a hold by the truth. Settling again is a no-op, so a late second answer cannot charge twice.
 *
 * @returns what was used beyond the hold, or `undefined` when it was settled before
 */
export const settle = (self: Hold, truth: Spend): Amount | undefined => {
  if (self.settled) return undefined
  self.settled = true
  const { account } = self
  // A call that outlives its node: its hold was charged when the account closed.
  if (account.closed) return undefined
  const excess = { tokens: 0, microDollars: 0 }
  for (const unit of units) {
    const used = truth[unit] ?? 0
    book(account, unit, "held", -self[unit])
    if (used > self[unit]) {
      excess[unit] = used - self[unit]
      account.stopped = true
      cover(account, unit, used)
    }
    book(account, unit, "spent", used)
  }
  account.ownTokens += truth.tokens ?? 0
  account.ownMicroDollars += truth.microDollars ?? 0
  return excess
}

/**
 * Ends an account: the reserve and what is left of the grant go back to where they came from, once. Holds that are still
 * open (of calls that outlive their node) are charged, for nobody will be there to settle them.
 *
 * @returns what was charged for open holds
 */
export const close = (self: Account): Amount => {
  const charged = { tokens: 0, microDollars: 0 }
  if (self.closed) return charged
  if (self.reserve !== undefined) settle(self.reserve, { tokens: 0, microDollars: 0 })
  for (const unit of units) {
    charged[unit] = self[unit].held
    book(self, unit, "held", -charged[unit])
    book(self, unit, "spent", charged[unit])
  }
  self.ownTokens += charged.tokens
  self.ownMicroDollars += charged.microDollars
  self.closed = true
  if (self.parent === undefined) return charged
  for (const unit of units) {
    const { granted, spent } = self[unit]
    if (granted === Infinity) continue
    book(self.parent, unit, "delegated", -granted)
    book(self.parent, unit, "spent", spent)
  }
  return charged
}

/** Whether the books of one account balance: no column negative, and the columns add up to the grant. */
export const balances = (self: Account): boolean =>
  units.every((unit) => {
    const { granted, spent, held, delegated } = self[unit]
    const free = freeOf(self[unit])
    return (
      spent >= 0 &&
      held >= 0 &&
      delegated >= 0 &&
      free >= 0 &&
      (granted === Infinity || granted === spent + held + delegated + free)
    )
  })

/** The grant of an account as a limit: absent units draw through. */
export const grantOf = (self: Account): Spend => ({
  ...(self.tokens.granted === Infinity ? {} : { tokens: self.tokens.granted }),
  ...(self.microDollars.granted === Infinity ? {} : { microDollars: self.microDollars.granted })
})
