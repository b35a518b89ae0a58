/** Readings of this process. */

/** CPU microseconds so far, of all threads: the collector's count too. */
export const cpuMicros = (): number => {
  const { system, user } = process.cpuUsage()
  return user + system
}

/** Heap bytes that are really in use. */
export const heapUsed = (): number => {
  globalThis.gc?.()
  globalThis.gc?.()
  return process.memoryUsage().heapUsed
}

/** The middle one. */
export const median = (values: ReadonlyArray<number>): number => values.toSorted((a, b) => a - b)[values.length >> 1]!
