/**
 * Counts what each layer tried first and tried again, so that the retries that really happened can be multiplied out.
 *
 * @internal
 */
export interface Layer {
  /** Attempts that were the first of their kind. */
  first: number
  /** Attempts after those. */
  again: number
}

export type Attempts = Map<string, Layer>

/** Layers are named by agents and dependencies, which are few; a program that makes up names is cut off here. */
const layersKept = 256

const layer = (self: Attempts, name: string): Layer | undefined => {
  const known = self.get(name)
  if (known !== undefined || self.size >= layersKept) return known
  const fresh = { first: 0, again: 0 }
  self.set(name, fresh)
  return fresh
}

export const first = (self: Attempts, name: string): void => {
  const counted = layer(self, name)
  if (counted !== undefined) counted.first++
}

export const again = (self: Attempts, name: string): void => {
  const counted = layer(self, name)
  if (counted !== undefined) counted.again++
}
