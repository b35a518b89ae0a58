import { describe, expect, it } from "vitest"
import * as fc from "fast-check"
import * as DueHeap from "../../src/internal/dueHeap.ts"

interface Waiter extends DueHeap.Item {
  readonly name: number
}

const waiter = (name: number): Waiter => ({ name, dueMillis: 0, dueSequence: 0, dueIndex: -1 })

describe("dueHeap", () => {
  it("has nothing due and no timer to arm when empty", () => {
    const heap = DueHeap.make<Waiter>()
    expect(DueHeap.nextDueMillis(heap)).toBe(Infinity)
    expect(DueHeap.popDue(heap, Infinity)).toBeUndefined()
    expect(DueHeap.size(heap)).toBe(0)
  })

  it("pops an item at its instant and not before", () => {
    const heap = DueHeap.make<Waiter>()
    const item = waiter(1)
    DueHeap.add(heap, item, 100.5)
    expect(DueHeap.nextDueMillis(heap)).toBe(100.5)
    expect(DueHeap.popDue(heap, 100.4)).toBeUndefined()
    expect(DueHeap.popDue(heap, 100.5)).toBe(item)
    expect(DueHeap.size(heap)).toBe(0)
    expect(item.dueIndex).toBe(-1)
  })

  it("pops those due at the same instant in the order they were added", () => {
    const heap = DueHeap.make<Waiter>()
    for (let name = 0; name < 50; name++) DueHeap.add(heap, waiter(name), name % 2)
    const names = [...Array(50).keys()].map(() => DueHeap.popDue(heap, 1)!.name)
    const even = [...Array(25).keys()].map((index) => 2 * index)
    expect(names).toEqual([...even, ...even.map((name) => name + 1)])
  })

  it("moves an item that is added again, behind its new equals", () => {
    const heap = DueHeap.make<Waiter>()
    const [a, b] = [waiter(1), waiter(2)]
    DueHeap.add(heap, a, 10)
    DueHeap.add(heap, b, 20)
    DueHeap.add(heap, a, 20)
    expect(DueHeap.size(heap)).toBe(2)
    expect([DueHeap.popDue(heap, 20), DueHeap.popDue(heap, 20)]).toEqual([b, a])
  })

  it("leaves strangers alone: removing an item of another heap does nothing", () => {
    const [one, other] = [DueHeap.make<Waiter>(), DueHeap.make<Waiter>()]
    const [a, b] = [waiter(1), waiter(2)]
    DueHeap.add(one, a, 1)
    DueHeap.add(other, b, 1)
    expect(DueHeap.remove(one, b)).toBe(false)
    expect([DueHeap.size(one), DueHeap.size(other)]).toEqual([1, 1])
  })

  it("refuses an instant that is not finite and stays as it was", () => {
    const heap = DueHeap.make<Waiter>()
    const item = waiter(1)
    DueHeap.add(heap, item, 5)
    for (const bad of [Number.NaN, Infinity, -Infinity]) {
      expect(() => DueHeap.add(heap, item, bad)).toThrow("dueHeap.add: dueMillis must be a finite number, got")
    }
    expect(DueHeap.popDue(heap, 5)).toBe(item)
  })

  it("agrees with a sorted list through any history of adding, removing and popping", () => {
    const step = fc.oneof(
      fc.record({ act: fc.constant("add" as const), which: fc.nat(19), due: fc.integer({ min: 0, max: 12 }) }),
      fc.record({ act: fc.constant("remove" as const), which: fc.nat(19) }),
      fc.record({ act: fc.constant("pop" as const), now: fc.integer({ min: -1, max: 12 }) })
    )
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200, size: "max" }), (history) => {
        const heap = DueHeap.make<Waiter>()
        const waiters = [...Array(20).keys()].map(waiter)
        // In order of adding; a stable sort by instant gives the order of popping.
        let model: Array<{ readonly item: Waiter; readonly due: number }> = []
        for (const move of history) {
          if (move.act === "add") {
            const item = waiters[move.which]!
            DueHeap.add(heap, item, move.due)
            model = [...model.filter((entry) => entry.item !== item), { item, due: move.due }]
          } else if (move.act === "remove") {
            const item = waiters[move.which]!
            expect(DueHeap.remove(heap, item)).toBe(model.some((entry) => entry.item === item))
            model = model.filter((entry) => entry.item !== item)
          } else {
            const first = model.toSorted((a, b) => a.due - b.due)[0]
            const expected = first !== undefined && first.due <= move.now ? first.item : undefined
            expect(DueHeap.popDue(heap, move.now)).toBe(expected)
            model = model.filter((entry) => entry.item !== expected)
          }
          expect(DueHeap.size(heap)).toBe(model.length)
          expect(DueHeap.nextDueMillis(heap)).toBe(model.reduce((least, entry) => Math.min(least, entry.due), Infinity))
          for (const item of waiters) {
            expect(item.dueIndex >= 0).toBe(model.some((entry) => entry.item === item))
          }
        }
      }),
      { numRuns: 300 }
    )
  })
})
