/**
 * Numbers that look random and are a function of a text: the same seed and request give the same reply, delay and
 * faults, in whatever order requests arrive.
 *
 * @internal
 */
export const draws = (text: string): (() => number) => {
  let state = 0x811c9dc5
  for (let index = 0; index < text.length; index++) state = Math.imul(state ^ text.charCodeAt(index), 0x01000193)
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}

/** A short name of a text, so that a long body need not be kept to know it again. */
export const digest = (text: string): string => {
  let high = 0x811c9dc5
  let low = 0x9e3779b1
  for (let index = 0; index < text.length; index++) {
    high = Math.imul(high ^ text.charCodeAt(index), 0x01000193)
    low = Math.imul(low ^ text.charCodeAt(index), 0x85ebca6b) ^ (low >>> 13)
  }
  return `${high >>> 0}.${low >>> 0}.${text.length}`
}
