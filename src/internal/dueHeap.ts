/**
 * Items that fall due at an instant, the earliest first, so that one timer serves them all.
 *
 * A timer a waiter is the simple way to give every waiter a deadline, and a hundred thousand timers is where it ends.
 * Here the waiters lie in a heap by the instant they fall due; the owner arms a single timer for `nextDueMillis`,
 * pops what is due when it fires, and arms none when the heap is empty.
 *
 * Sits beside a waiting line and knows nothing of it. Reads no clock. Items that fall due at the same instant come
 * out in the order they went in. Each item carries its own place in the heap, so that one that no longer waits is
 * removed without a search. A plain binary heap; `add`, `remove` and `popDue` are O(log n), the rest O(1).
 *
 * **Details** Units: milliseconds of a monotonic clock. Bounded by its owner: what waits is bounded where it is
 * admitted.
 *
 * **Gotchas** An item is in one heap at a time. Its three `due…` fields belong to the heap.
 *
 * @since 0.1.0
 */

/**
 * What an item carries for the heap. Start with `dueMillis: 0, dueSequence: 0, dueIndex: -1`.
 *
 * @category models
 * @since 0.1.0
 */
export interface Item {
  /** When it falls due. */
  dueMillis: number
  /** When it was added, counted; the order among equals. */
  dueSequence: number
  /** Its place in the heap; -1 while it is in none. */
  dueIndex: number
}

/**
 * A heap of items, changed in place.
 *
 * @category models
 * @since 0.1.0
 */
export interface DueHeap<A extends Item> {
  readonly items: Array<A>
  sequence: number
}

/**
 * Makes an empty heap.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = <A extends Item>(): DueHeap<A> => ({ items: [], sequence: 0 })

/**
 * How many items wait to fall due.
 *
 * @category getters
 * @since 0.1.0
 */
export const size = <A extends Item>(heap: DueHeap<A>): number => heap.items.length

/**
 * When the earliest item falls due; `Infinity` when there is none, and so no timer to arm.
 *
 * @category getters
 * @since 0.1.0
 */
export const nextDueMillis = <A extends Item>(heap: DueHeap<A>): number =>
  heap.items.length === 0 ? Infinity : heap.items[0]!.dueMillis

const before = (a: Item, b: Item): boolean =>
  a.dueMillis < b.dueMillis || (a.dueMillis === b.dueMillis && a.dueSequence < b.dueSequence)

const siftUp = <A extends Item>(items: Array<A>, item: A, from: number): void => {
  let index = from
  while (index > 0) {
    const parentIndex = (index - 1) >> 1
    const parent = items[parentIndex]!
    if (!before(item, parent)) break
    items[index] = parent
    parent.dueIndex = index
    index = parentIndex
  }
  items[index] = item
  item.dueIndex = index
}

const siftDown = <A extends Item>(items: Array<A>, item: A, from: number): void => {
  const length = items.length
  let index = from
  while (true) {
    let childIndex = 2 * index + 1
    if (childIndex >= length) break
    if (childIndex + 1 < length && before(items[childIndex + 1]!, items[childIndex]!)) childIndex++
    const child = items[childIndex]!
    if (!before(child, item)) break
    items[index] = child
    child.dueIndex = index
    index = childIndex
  }
  items[index] = item
  item.dueIndex = index
}

/**
 * Adds an item that falls due at the instant. An item that is already there is moved, behind its new equals.
 *
 * **Errors** A `RangeError` for an instant that is not finite: what never falls due needs no heap.
 *
 * @category operations
 * @since 0.1.0
 */
export const add = <A extends Item>(heap: DueHeap<A>, item: A, dueMillis: number): void => {
  if (!(Math.abs(dueMillis) < Infinity)) {
    throw new RangeError(`dueHeap.add: dueMillis must be a finite number, got ${dueMillis}`)
  }
  remove(heap, item)
  item.dueMillis = dueMillis
  item.dueSequence = heap.sequence++
  siftUp(heap.items, item, heap.items.length)
}

/**
 * Removes an item. Returns whether it was there, so that removing twice is harmless.
 *
 * @category operations
 * @since 0.1.0
 */
export const remove = <A extends Item>(heap: DueHeap<A>, item: A): boolean => {
  const items = heap.items
  const index = item.dueIndex
  // The second test keeps an item of another heap from throwing out a stranger.
  if (index < 0 || items[index] !== item) return false
  item.dueIndex = -1
  const last = items.pop()!
  if (last === item) return true
  if (index > 0 && before(last, items[(index - 1) >> 1]!)) siftUp(items, last, index)
  else siftDown(items, last, index)
  return true
}

/**
 * Removes and returns the earliest item that is due, or `undefined` when none is. An item is due at its instant, not
 * only after it.
 *
 * @category operations
 * @since 0.1.0
 */
export const popDue = <A extends Item>(heap: DueHeap<A>, nowMillis: number): A | undefined => {
  const first = heap.items[0]
  if (first === undefined || !(first.dueMillis <= nowMillis)) return undefined
  remove(heap, first)
  return first
}
