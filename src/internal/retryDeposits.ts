/**
 * Lets a tree of agents retry only a share of its calls.
 *
 * A maximum number of attempts per call cannot stop a storm: when everything fails, three retries make four times the
 * load, and the factor multiplies at every level of the tree. A budget counts the whole tree instead. Each first
 * attempt deposits; each retry withdraws; an empty budget turns the retry into the original failure.
 *
 * Sits between the retry schedule and the admission queue. Never waits, never refuses a first attempt, reads no clock.
 * Follows Finagle's `RetryBudget`, but states its law in counts of a window: in any `windowMillis`, wherever it
 * begins, retries cost at most `max(reserve, ratio × first attempts in it)`.
 *
 * **Details** Any window: also the one that begins with the first retry of a burst, into which the calls made before
 * do not fall and those made after may never come. So a burst is worth `reserve`, each further retry must have been
 * earned since the ones before it, and a steady stream gets `reserve / (reserve + 1)` of the ratio. `carryOver` asks
 * less: only windows that end with a retry count, so calls made during the last window pay for a burst now, and a
 * steady stream gets the whole ratio. Whole numbers only: the ratio is a fraction of integers, counts
 * are integers. Time is cut into at most 60 slots; what lies in a slot partly outside the window counts when it is a
 * retry and does not when it is a deposit, so the law is kept exactly, and at most a slot later than it could be.
 * Memory: some 60 slots and at most `reserve` retries, whatever the traffic; depositing is O(1), withdrawing
 * O(slots + reserve). A clock that steps back locks nobody out: time stands still until it has caught up.
 *
 * **Gotchas** The state is changed in place; it belongs to one owner.
 *
 * @since 0.1.0
 */

/**
 * How much may be retried.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options {
  /** Retries for each first attempt, in [0, 1], rounded to a millionth. Default 0.1. */
  readonly ratio?: number
  /**
   * Retries allowed in a window however few the first attempts, so that quiet trees may retry at all: an integer from
   * 0 (with which nothing is ever retried unless `carryOver`) to 10 000. Default 3.
   */
  readonly reserve?: number
  /** Length of the window in milliseconds, an integer >= 1. Default 60 000. */
  readonly windowMillis?: number
  /** Whether first attempts of the last window pay for a burst of retries now. Default `false`. */
  readonly carryOver?: boolean
}

/** A recent retry that, with those after it, is still within the reserve. */
interface Recent {
  readonly slot: number
  readonly depositsBefore: number
  readonly withdrawnBefore: number
}

/**
 * The state of a budget, changed in place by the functions of this module and read through them.
 *
 * @category models
 * @since 0.1.0
 */
export interface RetryDeposits {
  /** The ratio as a fraction: `share / whole`. */
  readonly share: number
  readonly whole: number
  readonly reserve: number
  readonly windowMillis: number
  readonly carryOver: boolean
  readonly slotMillis: number
  /** Number of the latest slot; the arrays below hold slot `n` at `n mod length`. */
  slot: number
  readonly deposited: Array<number>
  readonly withdrawn: Array<number>
  /** The least `whole × withdrawn − share × deposited` before a retry of the slot that is no longer recent. */
  readonly floors: Array<number>
  readonly recent: Array<Recent>
  depositedTotal: number
  withdrawnTotal: number
}

/** A sixtieth of a window later than exact is hardly noticed, and sixty numbers are summed in no time. */
const slotsPerWindow = 60

/** Recent retries are kept one by one; a reserve beyond this is no reserve. */
const reserveMax = 10_000

const gcd = (a: number, b: number): number => (b === 0 ? a : gcd(b, a % b))

/**
 * Makes a budget that holds its reserve.
 *
 * **Errors** A `RangeError` for an option out of its range.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (options: Options = {}): RetryDeposits => {
  const { ratio = 0.1, reserve = 3, windowMillis = 60_000, carryOver = false } = options
  if (!(ratio >= 0 && ratio <= 1)) {
    throw new RangeError(`retryDeposits.make: ratio must be a number from 0 to 1, got ${ratio}`)
  }
  if (!(Number.isInteger(reserve) && reserve >= 0 && reserve <= reserveMax)) {
    throw new RangeError(`retryDeposits.make: reserve must be an integer from 0 to ${reserveMax}, got ${reserve}`)
  }
  if (!(Number.isSafeInteger(windowMillis) && windowMillis >= 1)) {
    throw new RangeError(`retryDeposits.make: windowMillis must be an integer >= 1, got ${windowMillis}`)
  }
  const millionths = Math.round(ratio * 1e6)
  const divisor = gcd(1e6, millionths)
  const slotMillis = Math.ceil(windowMillis / slotsPerWindow)
  // The two more are those that the window only touches, at either end.
  const slots = Math.ceil(windowMillis / slotMillis) + 2
  return {
    share: millionths / divisor,
    whole: 1e6 / divisor,
    reserve,
    windowMillis,
    carryOver,
    slotMillis,
    slot: -Infinity,
    deposited: Array<number>(slots).fill(0),
    withdrawn: Array<number>(slots).fill(0),
    floors: Array<number>(slots).fill(Infinity),
    recent: [],
    depositedTotal: 0,
    withdrawnTotal: 0
  }
}

const indexOf = (state: RetryDeposits, slot: number): number => {
  const index = slot % state.floors.length
  return index < 0 ? index + state.floors.length : index
}

/** Moves on to the slot of this instant and returns the index of it, having emptied the slots in between. */
const advance = (state: RetryDeposits, nowMillis: number): number => {
  if (!(Math.abs(nowMillis) <= Number.MAX_SAFE_INTEGER)) {
    throw new RangeError(`retryDeposits: nowMillis must be a number within ±(2^53 - 1), got ${nowMillis}`)
  }
  let slot = Math.floor(nowMillis / state.slotMillis)
  // A quotient a hair below a whole number may have been rounded up to it.
  if (slot * state.slotMillis > nowMillis) slot--
  for (let next = Math.max(state.slot + 1, slot - state.floors.length + 1); next <= slot; next++) {
    const index = indexOf(state, next)
    state.deposited[index] = 0
    state.withdrawn[index] = 0
    state.floors[index] = Infinity
  }
  if (slot > state.slot) state.slot = slot
  return indexOf(state, state.slot)
}

/** Whether any of a slot lies in the window that ends now. */
const touches = (state: RetryDeposits, slot: number, nowMillis: number): boolean =>
  (slot + 1) * state.slotMillis >= nowMillis - state.windowMillis

/** What may be withdrawn now when only the window that ends now counts. */
const balanceOfWindow = (state: RetryDeposits, nowMillis: number): number => {
  let deposited = 0
  let withdrawn = 0
  for (let slot = state.slot - state.floors.length + 1; slot <= state.slot; slot++) {
    const index = indexOf(state, slot)
    if (touches(state, slot, nowMillis)) withdrawn += state.withdrawn[index]!
    if (slot * state.slotMillis > nowMillis - state.windowMillis) deposited += state.deposited[index]!
  }
  return Math.max(state.reserve, Math.floor((state.share * deposited) / state.whole)) - withdrawn
}

/**
 * What may be withdrawn now when every window counts: one that begins at any retry of the last window may get no more
 * deposits than it has. Without the recent retries, which the reserve covers, all of them are checked at once by the
 * least of their floors.
 */
const balanceOfWindows = (state: RetryDeposits, nowMillis: number): number => {
  let floor = Infinity
  for (let slot = state.slot - state.floors.length + 1; slot <= state.slot; slot++) {
    if (touches(state, slot, nowMillis)) floor = Math.min(floor, state.floors[indexOf(state, slot)]!)
  }
  while (state.recent.length > 0 && !touches(state, state.recent[0]!.slot, nowMillis)) state.recent.shift()
  // With no retry left to measure from, the totals may start over, so that they never outgrow exact integers.
  if (floor === Infinity && state.recent.length === 0) {
    state.depositedTotal = 0
    state.withdrawnTotal = 0
  }
  const { depositedTotal, share, whole, withdrawnTotal } = state
  const earned = (share * depositedTotal - whole * withdrawnTotal + floor) / whole
  let balance = Math.min(state.reserve, Math.floor(earned))
  for (const { depositsBefore, withdrawnBefore } of state.recent) {
    const allowed = Math.floor((share * (depositedTotal - depositsBefore)) / whole)
    balance = Math.min(balance, Math.max(state.reserve, allowed) - (withdrawnTotal - withdrawnBefore))
  }
  return balance
}

/**
 * Counts a first attempt.
 *
 * @category operations
 * @since 0.1.0
 */
export const deposit = (state: RetryDeposits, nowMillis: number): void => {
  const index = advance(state, nowMillis)
  state.deposited[index]!++
  state.depositedTotal++
}

/**
 * The largest cost that `withdraw` would grant now; an integer >= 0.
 *
 * @category getters
 * @since 0.1.0
 */
export const balance = (state: RetryDeposits, nowMillis: number): number => {
  advance(state, nowMillis)
  const millis = Math.max(nowMillis, state.slot * state.slotMillis)
  return Math.max(0, state.carryOver ? balanceOfWindow(state, millis) : balanceOfWindows(state, millis))
}

/**
 * Pays for a retry if the law allows it. Otherwise charges nothing and returns `false`.
 *
 * **Details** A retry costs 1; after a time-out it costs 2, for the attempt that timed out may still be running.
 *
 * **Errors** A `RangeError` for a cost that is not an integer >= 1; the state is unchanged.
 *
 * @category operations
 * @since 0.1.0
 */
export const withdraw = (state: RetryDeposits, cost: number, nowMillis: number): boolean => {
  if (!(Number.isSafeInteger(cost) && cost >= 1)) {
    throw new RangeError(`retryDeposits.withdraw: cost must be an integer >= 1, got ${cost}`)
  }
  if (cost > balance(state, nowMillis)) return false
  state.withdrawn[indexOf(state, state.slot)]! += cost
  const { recent } = state
  recent.push({ slot: state.slot, depositsBefore: state.depositedTotal, withdrawnBefore: state.withdrawnTotal })
  state.withdrawnTotal += cost
  // One more retry after these would be beyond the reserve, so from now on they must be earned.
  while (recent.length > 0 && state.withdrawnTotal - recent[0]!.withdrawnBefore >= state.reserve) {
    const { depositsBefore, slot, withdrawnBefore } = recent.shift()!
    const index = indexOf(state, slot)
    state.floors[index] = Math.min(state.floors[index]!, state.whole * withdrawnBefore - state.share * depositsBefore)
  }
  return true
}
