/** The books: laws 1 and 2 over any history of holding, settling, delegating and closing. */
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import * as Ledger from "../../src/internal/ledger.ts"

const account = (value: Ledger.Account | Ledger.Refusal): Ledger.Account => {
  if (Ledger.isRefusal(value)) assert.fail(`refused: ${value._tag}`)
  return value
}
const held = (value: Ledger.Hold | Ledger.Refusal): Ledger.Hold => {
  if (Ledger.isRefusal(value)) assert.fail(`refused: ${value._tag}`)
  return value
}
const columns = ({ tokens }: Ledger.Account) => [tokens.granted, tokens.spent, tokens.held, tokens.delegated]

describe("ledger", () => {
  it("settling again charges nothing, whatever the second truth says", () => {
    const root = Ledger.open("root", { tokens: 100 })
    const hold = held(Ledger.hold(root, { tokens: 10 }))
    assert.deepStrictEqual(Ledger.settle(hold, { tokens: 4 }), { tokens: 0, microDollars: 0 })
    assert.isUndefined(Ledger.settle(hold, { tokens: 9 }))
    assert.deepStrictEqual(columns(root), [100, 4, 0, 0])
  })

  it("a hold takes both units or neither", () => {
    const root = Ledger.open("root", { tokens: 100, microDollars: 5 })
    assert.isTrue(Ledger.isRefusal(Ledger.hold(root, { tokens: 10, microDollars: 6 })))
    assert.deepStrictEqual(columns(root), [100, 0, 0, 0])
    assert.isTrue(Ledger.isRefusal(Ledger.delegate(root, "child", { tokens: 10, microDollars: 6 })))
    assert.deepStrictEqual(columns(root), [100, 0, 0, 0])
  })

  it("a child's reserve is out of its own calls' reach, and open to its last words", () => {
    const root = Ledger.open("root", { tokens: 100 })
    const child = account(Ledger.delegate(root, "child", { tokens: 30 }, { tokens: 10 }))
    assert.isTrue(Ledger.isRefusal(Ledger.hold(child, { tokens: 21 })))
    const words = held(Ledger.hold(child, { tokens: 25 }, true))
    Ledger.settle(words, { tokens: 25 })
    Ledger.close(child)
    assert.deepStrictEqual(columns(root), [100, 25, 0, 0])
  })

  it("an account that draws through holds at the nearest grant above it, and closing it returns nothing twice", () => {
    const root = Ledger.open("root", { tokens: 100 })
    const through = account(Ledger.delegate(root, "through", {}))
    const below = account(Ledger.delegate(through, "below", { tokens: 40 }))
    assert.deepStrictEqual(
      [columns(root), columns(through)],
      [
        [100, 0, 0, 40],
        [Infinity, 0, 0, 40]
      ]
    )
    Ledger.settle(held(Ledger.hold(through, { tokens: 10 })), { tokens: 7 })
    Ledger.settle(held(Ledger.hold(below, { tokens: 10 })), { tokens: 5 })
    Ledger.close(below)
    Ledger.close(below)
    Ledger.close(through)
    assert.deepStrictEqual(columns(root), [100, 12, 0, 0])
  })

  it("a hold that outlives its account is charged when it closes, and never again", () => {
    const root = Ledger.open("root", { tokens: 100 })
    const child = account(Ledger.delegate(root, "child", { tokens: 30 }))
    const late = held(Ledger.hold(child, { tokens: 8 }))
    assert.deepStrictEqual(Ledger.close(child), { tokens: 8, microDollars: 0 })
    Ledger.settle(late, { tokens: 3 })
    assert.deepStrictEqual(columns(root), [100, 8, 0, 0])
  })

  const act = fc.record({
    kind: fc.constantFrom("hold", "settle", "delegate", "close", "overdraw"),
    pick: fc.nat(1_000),
    tokens: fc.nat(60),
    microDollars: fc.nat(60),
    limited: fc.boolean()
  })
  it("balances at every account after every step of any history, and nothing is lost or made", () => {
    fc.assert(
      fc.property(fc.nat(300), fc.array(act, { maxLength: 80 }), (grant, acts) => {
        const root = Ledger.open("root", { tokens: grant, microDollars: grant })
        const accounts = [root]
        const holds: Array<Ledger.Hold> = []
        let spent = 0
        let overdrawn = false
        for (const { kind, pick, tokens, microDollars, limited } of acts) {
          const at = accounts[pick % accounts.length]!
          const hold = holds[pick % Math.max(1, holds.length)]
          if (kind === "hold") {
            const taken = Ledger.hold(at, { tokens, microDollars })
            if (!Ledger.isRefusal(taken)) holds.push(taken)
          } else if (kind === "delegate") {
            const child = Ledger.delegate(at, `a${accounts.length}`, limited ? { tokens, microDollars } : {})
            if (!Ledger.isRefusal(child)) accounts.push(child)
          } else if (kind === "close") {
            // As in a tree: children end before their parent.
            if (at !== root && !accounts.some((other) => other.parent === at && !other.closed))
              spent += Ledger.close(at).tokens
          } else if (hold !== undefined) {
            const open = !hold.settled && !hold.account.closed
            const used = kind === "overdraw" ? hold.tokens + 5 : Math.min(tokens, hold.tokens)
            overdrawn ||= open && kind === "overdraw"
            Ledger.settle(hold, { tokens: used, microDollars: 0 })
            if (open) spent += used
          }
          for (const each of accounts) assert.isTrue(Ledger.balances(each), `${each.id} after ${kind}`)
          if (!overdrawn) assert.isAtMost(root.tokens.spent, grant)
        }
        for (const each of accounts.toReversed()) spent += Ledger.close(each).tokens
        assert.deepStrictEqual([root.tokens.spent, root.tokens.held, root.tokens.delegated], [spent, 0, 0])
      }),
      { numRuns: 500 }
    )
  })
})
