/**
 * A 64-bit hash of text, as two signed 32-bit lanes that mix each other (the multiply-and-xor finish of MurmurHash3).
 * Not for secrets: it only has to make an accidental collision on one path of a tree unthinkable.
 *
 * @internal
 */
export interface Hash64 {
  readonly high: number
  readonly low: number
}

/** The hash of `text`, starting from `seed` (32 bits). */
export const hash64 = (text: string, seed: number = 0): Hash64 => {
  let high = 0x9e3779b1 ^ seed
  let low = 0x85ebca77 ^ Math.imul(seed, 0x27d4eb2f)
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i)
    high = Math.imul(high ^ unit, 0x9e3779b1)
    high ^= high >>> 15
    low = Math.imul(low ^ unit, 0x5f356495)
    low ^= low >>> 13
  }
  high = Math.imul(high ^ (high >>> 16), 0x85ebca6b) ^ Math.imul(low ^ (low >>> 13), 0xc2b2ae35)
  low = Math.imul(low ^ (low >>> 16), 0x85ebca6b) ^ Math.imul(high ^ (high >>> 13), 0xc2b2ae35)
  return { high, low }
}
