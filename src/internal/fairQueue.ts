/**
 * The waiting line in front of something scarce: four tiers that share it, and nobody who waits for ever.
 *
 * First come, first served gives everything to whoever asks most. Strict priority gives nothing to whoever ranks
 * last. Here every tier owns a share (8 : 4 : 2 : 1), counted in cost and not in turns. A tier that has had less than
 * its share so far is owed, one that has had more is ahead; only a tier that is not ahead may go, and of those the
 * one whose turn would be over first. A share nobody waits for goes to the others at once. Above that stands the age
 * bound: what has waited that long goes next, whatever its tier, the oldest first.
 *
 * Sits behind admission and before slots and rates. It decides who is next, never when: it holds no permit, arms no
 * timer, reads no clock, and refuses nobody (how long the line may get is its owner's business). `peek` only looks,
 * so looking twice moves no share. Offering is O(1) where orders arrive ascending, else O(log n); `cancel` is O(1),
 * taking O(log n), both amortised; nothing walks the line. What left the line is forgotten at the latest when it
 * outnumbers what waits.
 *
 * **Details** Deficit round robin (Shreedhar and Varghese) with the eligibility rule of EEVDF (Stoica and others,
 * now also in the Linux scheduler): plain deficit round robin serves a whole quantum of one tier in a row and drifts
 * several costs off the shares; with the rule no tier is ever more than one largest cost ahead or behind. Units:
 * cost in any one unit, milliseconds of a monotonic clock.
 *
 * **Gotchas** The fields of an item must not change while it waits: cancel it, change it, offer it again.
 *
 * @since 0.1.0
 */

/**
 * Who goes first: 0 is best, 3 is last.
 *
 * @category models
 * @since 0.1.0
 */
export type Tier = 0 | 1 | 2 | 3

/**
 * What the line knows of someone who waits. The object is the caller's own and may carry anything else.
 *
 * @category models
 * @since 0.1.0
 */
export interface Item {
  readonly tier: Tier
  /** What serving it takes of its tier's share; a finite number >= 0. */
  readonly cost: number
  /** Its place among its own tier: lower goes first, equals in order of arrival. */
  readonly order: number
  /** Since when it has waited; an item that comes back may keep its first instant. */
  readonly enqueuedMillis: number
  /** Belongs to the line. Start with 0; it is 0 exactly while the item does not wait. */
  ticket: number
}

/**
 * How tiers share the line.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options {
  /** Share of each tier, best first; finite numbers > 0. Default 8 : 4 : 2 : 1. */
  readonly weights?: readonly [number, number, number, number]
  /** Serve the best tier that waits, always; weights then mean nothing. Default `false`. */
  readonly strict?: boolean
  /**
   * What has waited this long goes next. Milliseconds, a number > 0; `Infinity` switches it off. Default 60 000: the
   * window in which providers count, so that whoever waits longer has been passed over in a whole one.
   */
  readonly ageBoundMillis?: number
  /**
   * The least that a turn is charged, a finite number > 0. Default 1, one token or one call: without it a tier whose
   * items cost nothing would never use up its share, and the others would never go.
   */
  readonly minimumCost?: number
}

/**
 * A line, changed in place by the functions of this module and read through them.
 *
 * @category models
 * @since 0.1.0
 */
export interface FairQueue<A extends Item> {
  readonly weights: ReadonlyArray<number>
  readonly strict: boolean
  readonly ageBoundMillis: number
  readonly minimumCost: number
  readonly tiers: ReadonlyArray<Line<A>>
  readonly ages: Line<A>
  readonly sizes: Array<number>
  /** Cost served of each tier over its weight. Equal among tiers that wait when each has had just its share. */
  readonly served: Array<number>
  size: number
  tickets: number
  largestCost: number
}

/**
 * Items by ascending key. Those that arrive in order lie in the run, a plain list; the others in a heap of four
 * children a node. The head is the lesser of the two heads. An entry whose ticket is no longer its item's is dead:
 * its item was taken or cancelled, and may wait again elsewhere. Dead entries are skipped when they come up.
 */
interface Line<A extends Item> {
  readonly key: (item: Item) => number
  readonly run: Array<A | undefined>
  readonly runTickets: Array<number>
  /** Entries of the run before this one have been passed. */
  runHead: number
  /** Key of the last entry of the run, kept apart because a dead item may have changed since. */
  runTailKey: number
  readonly heap: Array<A>
  readonly heapTickets: Array<number>
  readonly heapKeys: Array<number>
}

const makeLine = <A extends Item>(key: (item: Item) => number): Line<A> => ({
  key,
  run: [],
  runTickets: [],
  runHead: 0,
  runTailKey: -Infinity,
  heap: [],
  heapTickets: [],
  heapKeys: []
})

const put = <A extends Item>(line: Line<A>, index: number, item: A, ticket: number, key: number): void => {
  line.heap[index] = item
  line.heapTickets[index] = ticket
  line.heapKeys[index] = key
}

const move = <A extends Item>(line: Line<A>, to: number, from: number): void =>
  put(line, to, line.heap[from]!, line.heapTickets[from]!, line.heapKeys[from]!)

const siftDown = <A extends Item>(line: Line<A>, from: number, item: A, ticket: number, key: number): void => {
  const { heapKeys, heapTickets } = line
  const length = line.heap.length
  let index = from
  for (let first = 4 * index + 1; first < length; first = 4 * index + 1) {
    let child = first
    const end = Math.min(first + 4, length)
    for (let other = first + 1; other < end; other++) {
      const gap = heapKeys[other]! - heapKeys[child]!
      if (gap < 0 || (gap === 0 && heapTickets[other]! < heapTickets[child]!)) child = other
    }
    const gap = heapKeys[child]! - key
    if (gap > 0 || (gap === 0 && heapTickets[child]! > ticket)) break
    move(line, index, child)
    index = child
  }
  put(line, index, item, ticket, key)
}

const popHeap = <A extends Item>(line: Line<A>): void => {
  const item = line.heap.pop()!
  const ticket = line.heapTickets.pop()!
  const key = line.heapKeys.pop()!
  if (line.heap.length > 0) siftDown(line, 0, item, ticket, key)
}

const insert = <A extends Item>(line: Line<A>, item: A, ticket: number): void => {
  const key = line.key(item)
  if (line.runHead === line.run.length || key >= line.runTailKey) {
    line.run.push(item)
    line.runTickets.push(ticket)
    line.runTailKey = key
    return
  }
  let index = line.heap.length
  while (index > 0) {
    const parent = (index - 1) >> 2
    // Equals stay above: they arrived before.
    if (line.heapKeys[parent]! <= key) break
    move(line, index, parent)
    index = parent
  }
  put(line, index, item, ticket, key)
}

/** The first item of the line that still waits. Drops the dead ones before it, which changes nothing one could see. */
const head = <A extends Item>(line: Line<A>): A | undefined => {
  const { heap, run } = line
  while (line.runHead < run.length && run[line.runHead]!.ticket !== line.runTickets[line.runHead]) {
    run[line.runHead++] = undefined
  }
  while (heap.length > 0 && heap[0]!.ticket !== line.heapTickets[0]) popHeap(line)
  const first = run[line.runHead]
  if (heap.length === 0) return first
  if (first === undefined) return heap[0]
  const difference = line.key(first) - line.heapKeys[0]!
  return difference < 0 || (difference === 0 && first.ticket < line.heapTickets[0]!) ? first : heap[0]
}

/** Dead or passed entries that a line may keep beside those that wait, so that short lines are not tidied all day. */
const spare = 64

/** Forgets the dead once they outnumber the living. It costs as much as there were dead ones: O(1) for each. */
const tidy = <A extends Item>(line: Line<A>, living: number): void => {
  if (line.run.length + line.heap.length <= 2 * living + spare) return
  let kept = 0
  for (let index = line.runHead; index < line.run.length; index++) {
    const item = line.run[index]!
    if (item.ticket !== line.runTickets[index]) continue
    line.run[kept] = item
    line.runTickets[kept++] = item.ticket
  }
  line.run.length = kept
  line.runTickets.length = kept
  line.runHead = 0
  kept = 0
  for (let index = 0; index < line.heap.length; index++) {
    if (line.heap[index]!.ticket === line.heapTickets[index]) move(line, kept++, index)
  }
  line.heap.length = kept
  line.heapTickets.length = kept
  line.heapKeys.length = kept
  for (let index = (kept - 2) >> 2; index >= 0; index--) {
    siftDown(line, index, line.heap[index]!, line.heapTickets[index]!, line.heapKeys[index]!)
  }
}

const check = (caller: string, name: string, must: string, holds: boolean, value: unknown): void => {
  if (!holds) throw new RangeError(`fairQueue.${caller}: ${name} must be ${must}, got ${String(value)}`)
}

/**
 * Makes an empty line.
 *
 * **Errors** A `RangeError` for an option out of its range.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = <A extends Item>(options: Options = {}): FairQueue<A> => {
  const { weights = [8, 4, 2, 1], strict = false, ageBoundMillis = 60_000, minimumCost = 1 } = options
  const finite = (value: number): boolean => value > 0 && value < Infinity
  check("make", "weights", "four finite numbers > 0", weights.length === 4 && weights.every(finite), weights)
  check("make", "ageBoundMillis", "a number > 0", ageBoundMillis > 0, ageBoundMillis)
  check("make", "minimumCost", "a finite number > 0", finite(minimumCost), minimumCost)
  const order = (item: Item): number => item.order
  return {
    weights: [...weights],
    strict,
    ageBoundMillis,
    minimumCost,
    tiers: [makeLine(order), makeLine(order), makeLine(order), makeLine(order)],
    ages: makeLine((item) => item.enqueuedMillis),
    sizes: [0, 0, 0, 0],
    served: [0, 0, 0, 0],
    size: 0,
    tickets: 0,
    largestCost: 0
  }
}

/** What every waiting tier would have been served, over its weight, had the shares been kept to the last crumb. */
const evenShare = <A extends Item>(queue: FairQueue<A>): number => {
  let served = 0
  let weights = 0
  for (let tier = 0; tier < 4; tier++) {
    if (queue.sizes[tier] === 0) continue
    served += queue.weights[tier]! * queue.served[tier]!
    weights += queue.weights[tier]!
  }
  return served / weights
}

const nextTier = <A extends Item>(queue: FairQueue<A>): number => {
  if (queue.strict) return queue.sizes.findIndex((waiting) => waiting > 0)
  const even = evenShare(queue)
  // Among equals the mean may come out a rounding error below them all, and then nobody could go.
  const notAhead = even + 1e-9 * Math.max(queue.largestCost, Math.abs(even))
  let next = -1
  let earliestEnd = Infinity
  for (let tier = 0; tier < 4; tier++) {
    if (queue.sizes[tier] === 0 || queue.served[tier]! > notAhead) continue
    // Every turn is reckoned at the largest cost. So a better tier that comes to a line of lesser ones is next, no
    // matter how much dearer its item is.
    const end = queue.served[tier]! + queue.largestCost / queue.weights[tier]!
    if (end < earliestEnd) {
      earliestEnd = end
      next = tier
    }
  }
  return next
}

/**
 * Puts an item into the line.
 *
 * **Errors** A `RangeError` for an item that waits already or whose fields are out of range; the line is unchanged.
 *
 * @category operations
 * @since 0.1.0
 */
export const offer = <A extends Item>(queue: FairQueue<A>, item: A): void => {
  const { tier, cost, order, enqueuedMillis } = item
  check("offer", "tier", "0, 1, 2 or 3", tier === 0 || tier === 1 || tier === 2 || tier === 3, tier)
  check("offer", "cost", "a number from 0 to 2^53 - 1", cost >= 0 && cost <= Number.MAX_SAFE_INTEGER, cost)
  check("offer", "order", "a finite number", Math.abs(order) < Infinity, order)
  check("offer", "enqueuedMillis", "a finite number", Math.abs(enqueuedMillis) < Infinity, enqueuedMillis)
  check("offer", "ticket", "0, as of an item that does not wait", item.ticket === 0, item.ticket)
  // A tier that comes back owes what it was ahead, and is owed nothing for the time it did not wait.
  if (queue.size > 0 && queue.sizes[tier] === 0) {
    queue.served[tier] = Math.max(queue.served[tier]!, evenShare(queue))
  }
  const ticket = ++queue.tickets
  item.ticket = ticket
  insert(queue.tiers[tier]!, item, ticket)
  insert(queue.ages, item, ticket)
  queue.sizes[tier]!++
  queue.size++
  queue.largestCost = Math.max(queue.largestCost, cost, queue.minimumCost)
}

const leave = <A extends Item>(queue: FairQueue<A>, item: A): void => {
  item.ticket = 0
  const living = --queue.sizes[item.tier]!
  queue.size--
  tidy(queue.tiers[item.tier]!, living)
  tidy(queue.ages, queue.size)
  // With nobody left to share with, nothing is owed. It also keeps the numbers small.
  if (queue.size === 0) {
    queue.served.fill(0)
    queue.largestCost = 0
  }
}

/**
 * Takes an item out of the line without serving it. Returns whether it waited, so that cancelling twice is harmless.
 *
 * **Details** The size is exact at once and no share moves.
 *
 * @category operations
 * @since 0.1.0
 */
export const cancel = <A extends Item>(queue: FairQueue<A>, item: A): boolean => {
  if (item.ticket === 0) return false
  leave(queue, item)
  return true
}

/**
 * The item that must go next, or `undefined` when nobody waits. It stays the same until something is offered,
 * cancelled or taken, or somebody reaches the age bound.
 *
 * @category getters
 * @since 0.1.0
 */
export const peek = <A extends Item>(queue: FairQueue<A>, nowMillis: number): A | undefined => {
  if (queue.size === 0) return undefined
  const oldest = head(queue.ages)!
  if (nowMillis - oldest.enqueuedMillis >= queue.ageBoundMillis) return oldest
  return head(queue.tiers[nextTier(queue)]!)
}

/**
 * Removes the item that must go next and charges its cost to the share of its tier.
 *
 * @category operations
 * @since 0.1.0
 */
export const take = <A extends Item>(queue: FairQueue<A>, nowMillis: number): A | undefined => {
  const item = peek(queue, nowMillis)
  if (item === undefined) return undefined
  queue.served[item.tier]! += Math.max(item.cost, queue.minimumCost) / queue.weights[item.tier]!
  // A line that never empties counts on for ever; only differences matter, so start over before digits are lost.
  if (queue.served[item.tier]! > 2 ** 40) {
    const even = evenShare(queue)
    for (let tier = 0; tier < 4; tier++) queue.served[tier]! -= even
  }
  leave(queue, item)
  return item
}

/**
 * How many wait.
 *
 * @category getters
 * @since 0.1.0
 */
export const size = <A extends Item>(queue: FairQueue<A>): number => queue.size

/**
 * How many of a tier wait.
 *
 * @category getters
 * @since 0.1.0
 */
export const sizeOf = <A extends Item>(queue: FairQueue<A>, tier: Tier): number => queue.sizes[tier]!

/**
 * Since when the oldest has waited; `Infinity` when nobody waits.
 *
 * @category getters
 * @since 0.1.0
 */
export const oldestEnqueuedMillis = <A extends Item>(queue: FairQueue<A>): number =>
  queue.size === 0 ? Infinity : head(queue.ages)!.enqueuedMillis

/**
 * Everybody who waits, best tier first and in no particular order inside a tier. For looking at, not for
 * serving: it walks the whole line, which must not change meanwhile.
 *
 * @category getters
 * @since 0.1.0
 */
export function* items<A extends Item>(queue: FairQueue<A>): Generator<A> {
  for (const line of queue.tiers) {
    for (let index = line.runHead; index < line.run.length; index++) {
      const item = line.run[index]!
      if (item.ticket === line.runTickets[index]) yield item
    }
    for (let index = 0; index < line.heap.length; index++) {
      if (line.heap[index]!.ticket === line.heapTickets[index]) yield line.heap[index]!
    }
  }
}
