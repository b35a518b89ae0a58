/**
 * The order inside a tier, as one number, so that the line compares numbers and nothing else: trees that have begun before
 * new ones (finish what was started), then the earlier deadline (in tenths of a second), then the tree that has had least
 * so far (in powers of two), then arrival.
 *
 * @internal
 */
const never = 2 ** 42

export const lineOrder = (begun: boolean, deadlineMillis: number, attained: number): number => {
  const due = deadlineMillis === Infinity ? never : Math.min(never - 1, Math.floor(deadlineMillis / 100))
  const had = Math.min(63, Math.ceil(Math.log2(1 + attained)))
  return (begun ? 0 : 2 ** 49) + due * 64 + had
}
