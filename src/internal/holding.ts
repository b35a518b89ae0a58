/**
 * Opens an envelope's account for the two moves that a call makes: hold before, settle after.
 *
 * @internal
 */
import * as Rejected from "../Rejected.ts"
import type { Spend } from "../Spend.ts"
import { Envelope } from "./envelope.ts"
import * as Ledger from "./ledger.ts"
import type { Recorder } from "./recorder.ts"

/** The account of an envelope; only the ledger's floor knows what it is. */
const accountOf = (envelope: Envelope): Ledger.Account => Envelope.account(envelope) as Ledger.Account

/** Sets an upper bound aside, or says which account is too tight. */
export const take = (envelope: Envelope, amount: Spend): Ledger.Hold | Rejected.Rejected => {
  const hold = Ledger.hold(accountOf(envelope), amount, Envelope.usesReserve(envelope))
  return Ledger.isRefusal(hold) ? Rejected.make(hold, envelope.id) : hold
}

/** Replaces a hold by the truth; an unknown truth (`undefined`) is charged at the hold. */
export const settle = (envelope: Envelope, hold: Ledger.Hold, truth: Spend | undefined, nowMillis: number): void => {
  const recorder = Envelope.recorder(envelope)
  if (hold.settled || hold.account.closed) return
  if (truth === undefined && (hold.tokens > 0 || hold.microDollars > 0)) recorder.estimated++
  const charged = truth ?? { tokens: hold.tokens, microDollars: hold.microDollars }
  recorder.spentTokens += charged.tokens ?? 0
  recorder.spentMicroDollars += charged.microDollars ?? 0
  const excess = Ledger.settle(hold, charged)
  if (excess !== undefined && (excess.tokens > 0 || excess.microDollars > 0)) {
    recorder.emit({
      _tag: "Overdrawn",
      atMillis: nowMillis,
      task: envelope.task,
      node: envelope.id,
      tokens: excess.tokens,
      microDollars: excess.microDollars
    })
  }
}

/** What a call under this envelope could still hold; absent is unlimited. */
export const remaining = (envelope: Envelope): Spend => {
  const account = accountOf(envelope)
  const reserve = Envelope.usesReserve(envelope) ? account.reserve : undefined
  const tokens = Ledger.available(account, "tokens") + (reserve?.tokens ?? 0)
  const microDollars = Ledger.available(account, "microDollars") + (reserve?.microDollars ?? 0)
  return {
    ...(tokens === Infinity ? {} : { tokens }),
    ...(microDollars === Infinity ? {} : { microDollars })
  }
}

/** Closes an account; what calls that outlive it had held is charged and counted as estimated. */
export const close = (account: Ledger.Account, recorder: Recorder): void => {
  const { tokens, microDollars } = Ledger.close(account)
  if (tokens === 0 && microDollars === 0) return
  recorder.estimated++
  recorder.spentTokens += tokens
  recorder.spentMicroDollars += microDollars
}
