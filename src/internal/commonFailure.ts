/**
 * Finds the one thing that many fail of.
 *
 * Forty agents that each fail a flaky test look like forty failures; told apart by what failed and how, they are one. A
 * failure is filed under its dependency, operation and kind. When one file explains at least half of the failures of
 * the last minute, holds at least five and they come from at least three nodes, it is named, once a minute.
 *
 * Units: milliseconds. Memory: at most 64 files of six buckets and eight nodes; a 65th is not opened until one empties.
 *
 * @internal
 */
const windowMillis = 60_000
const bucketMillis = 10_000
const buckets = windowMillis / bucketMillis
const leastFailures = 5
const leastNodes = 3
const leastShare = 0.5
const filesKept = 64
const nodesKept = 8

interface File {
  readonly counts: Array<number>
  readonly nodes: Set<string>
  bucket: number
  namedMillis: number
}

export interface CommonFailures {
  readonly files: Map<string, File>
  readonly all: File
}

export interface Finding {
  readonly failures: number
  /** Of all failures in the window, above 0 and at most 1. */
  readonly share: number
}

const file = (bucket: number): File => ({
  counts: Array.from({ length: buckets }, () => 0),
  nodes: new Set(),
  bucket,
  namedMillis: -Infinity
})

export const make = (): CommonFailures => ({ files: new Map(), all: file(0) })

/** Forgets the buckets that have left the window. */
const advance = (self: File, bucket: number): void => {
  const passed = Math.min(buckets, bucket - self.bucket)
  if (passed <= 0) return
  for (let step = 1; step <= passed; step++) self.counts[(self.bucket + step) % buckets] = 0
  self.bucket = bucket
  if (passed >= buckets) self.nodes.clear()
}

const total = (self: File): number => self.counts.reduce((sum, count) => sum + count, 0)

/** Files a failure of `node`; the finding when this is the moment to name it. */
export const note = (self: CommonFailures, key: string, node: string, nowMillis: number): Finding | undefined => {
  const bucket = Math.floor(nowMillis / bucketMillis)
  let own = self.files.get(key)
  if (own === undefined) {
    if (self.files.size >= filesKept) {
      for (const [name, old] of self.files) {
        advance(old, bucket)
        if (total(old) === 0) self.files.delete(name)
      }
      if (self.files.size >= filesKept) return undefined
    }
    own = file(bucket)
    self.files.set(key, own)
  }
  for (const each of [own, self.all]) {
    advance(each, bucket)
    each.counts[bucket % buckets]! += 1
  }
  if (own.nodes.size < nodesKept) own.nodes.add(node)
  const failures = total(own)
  const share = failures / total(self.all)
  if (failures < leastFailures || own.nodes.size < leastNodes || share < leastShare) return undefined
  if (nowMillis - own.namedMillis < windowMillis) return undefined
  own.namedMillis = nowMillis
  return { failures, share }
}
